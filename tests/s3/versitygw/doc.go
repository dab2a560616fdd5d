// Package versitygw pins the version of the S3 server that package s3 starts for tests. It is a separate module, so that the
// dependencies of the server do not become dependencies of Atelier.
package versitygw
