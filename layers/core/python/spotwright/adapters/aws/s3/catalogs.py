"""Instance catalogs by key, decoded once per process (InstanceCatalogPort)."""

from threading import Lock

from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.aws.instance_types import catalog_codec
from spotwright.model.ec2.instance_type import Catalog

# Catalogs of so many clusters stay decoded, some 5 MB each; those that were read longest ago make room.
CACHE_SIZE = 16


class Catalogs:
    """See InstanceCatalogPort."""

    def __init__(self, blobs: S3Blobs) -> None:
        self._blobs = blobs
        self._read: dict[str, Catalog] = {}
        # A fresh process reads in several threads; decoding takes long.
        self._reading = Lock()

    def read(self, key: str) -> Catalog:
        """The catalog of ``key``; an empty one for "" (no catalog was made yet)."""
        if not key:
            return Catalog(source="no catalog yet")
        with self._reading:
            catalog = self._read.pop(key, None) or catalog_codec.decode(self._blobs.get(key))
            while len(self._read) >= CACHE_SIZE:
                self._read.pop(next(iter(self._read)))
            self._read[key] = catalog
        return catalog
