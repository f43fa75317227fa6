"""What moto lacks of DynamoDB (time to live) and S3 (conditions in bucket policies)."""
