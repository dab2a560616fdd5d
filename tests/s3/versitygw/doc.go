// Package versitygw pins the S3 server that package s3 runs its tests against. It is a module of its own, so that the
// server's modules are none of the product's.
package versitygw
