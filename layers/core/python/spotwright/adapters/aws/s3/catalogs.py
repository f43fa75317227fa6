"""Instance catalogs by key, decoded once per process (InstanceCatalogPort)."""

from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.aws.instance_types import catalog_codec
from spotwright.model.ec2.instance_type import Catalog

# A process serves the clusters of a cell, each of which has a current catalog; older catalogs are not read again.
CACHE_SIZE = 4


class Catalogs:
    """See InstanceCatalogPort."""

    def __init__(self, blobs: S3Blobs) -> None:
        self._blobs = blobs
        self._read: dict[str, Catalog] = {}

    def read(self, key: str) -> Catalog:
        """The catalog of ``key``; an empty one for "" (no catalog was made yet)."""
        if not key:
            return Catalog(source="no catalog yet")
        if key not in self._read:
            while len(self._read) >= CACHE_SIZE:
                self._read.pop(next(iter(self._read)))
            self._read[key] = catalog_codec.decode(self._blobs.get(key))
        return self._read[key]
