"""What commands print: values of the model in, text, JSON or YAML out. Nothing here reads input."""
