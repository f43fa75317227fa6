"""EC2NodeClasses and the region in, class statuses and a stored catalog of instance types out."""
