"""The nouns: frozen values that know no wire format, no cloud and no clock."""
