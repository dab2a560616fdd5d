package bucket_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/computer/bucket/buckettest"
	s3server "github.com/atelier-run/atelier/tests/s3"
)

// TestS3 runs the conformance suite against a real S3 server.
func TestS3(t *testing.T) {
	server := s3server.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", server.Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.Secret)
	var buckets atomic.Int32
	buckettest.Run(t, func(t *testing.T) bucket.Bucket {
		name := fmt.Sprintf("bucket-%d", buckets.Add(1))
		if err := os.Mkdir(filepath.Join(server.Dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		at, err := bucket.Parse("s3://" + name + "?region=us-east-1&endpoint=http://" + server.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		b, err := at.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	})
}
