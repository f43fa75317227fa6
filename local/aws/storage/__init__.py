"""What moto lacks of DynamoDB (time to live, speed) and S3 (conditions in bucket policies)."""
