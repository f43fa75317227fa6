"""One API each: Kubernetes, EC2, DynamoDB, S3, SQS and their neighbours. They never decide."""
