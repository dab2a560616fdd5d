package limit

// SharesBucket reports whether two clients share a bucket.
func (b ClientBuckets) SharesBucket(one, other Client) bool {
	first, _, _ := one.keys()
	second, _, _ := other.keys()
	return b.buckets.Bucket(first) == b.buckets.Bucket(second)
}
