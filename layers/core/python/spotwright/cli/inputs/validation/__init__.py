"""What an API server would say about the objects of manifests: unknown fields, wrong types, values not allowed.

Source: the OpenAPI schema of Kubernetes (``kubernetes.schema.json.z``, which tools/kubernetes_schema.py writes), the
validation functions of ``k8s.io/kubernetes/pkg/apis/*/validation`` for fields that decide where pods run, and the
CustomResourceDefinitions in ``spotwright/manifests``. As with ``kubectl apply``, unknown fields are errors.
"""
