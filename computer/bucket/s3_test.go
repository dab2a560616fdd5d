package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/tests/race"
	s3server "github.com/atelier-run/atelier/tests/s3"
)

// connect opens the bucket at an address with the credentials key and secret, and closes it when the test ends.
func connect(t *testing.T, address, key, secret string) *S3 {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	at, err := Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b, err := at.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.(*S3)
}

// addressOf returns the address of a bucket on a server.
func addressOf(s *s3server.Server, bucket string) string {
	return "s3://" + bucket + "?region=us-east-1&endpoint=http://" + s.Endpoint
}

// countUploads returns the number of unfinished multipart uploads on the server.
func (s *S3) countUploads(t *testing.T) int {
	t.Helper()
	found, err := s.core.ListMultipartUploads(t.Context(), s.options.Bucket, "", "", "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return len(found.Uploads)
}

// writeNothing writes an empty object.
func writeNothing(io.Writer) error { return nil }

// TestPutAndGetWithManyParts stores an object and reads it back. The later parts of the object are too large for memory.
func TestPutAndGetWithManyParts(t *testing.T) {
	race.Skip(t, "it sends 300 MB, in 160 s")
	server := s3server.Start(t)
	b := connect(t, addressOf(server, "backups"), server.Key, server.Secret)
	b.schedule = schedule{first: 5 << 20, growth: 30, unit: 1 << 20, parts: 60}
	const size = 300<<20 + 7
	if size/b.schedule.first < 60 {
		t.Fatal("the object fits into parts of the first size: the test needs a larger object")
	}
	seed := [32]byte{1}
	written := sha256.New()
	err := b.Put(t.Context(), "ws_1/large", func(to io.Writer) error {
		_, err := io.Copy(io.MultiWriter(to, written), io.LimitReader(rand.NewChaCha8(seed), size))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	object, err := b.Get(t.Context(), "ws_1/large")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	read := sha256.New()
	if n, err := io.Copy(read, object); err != nil || n != size || !bytes.Equal(read.Sum(nil), written.Sum(nil)) {
		t.Errorf("read %d bytes (%v), want the %d bytes written", n, err, size)
	}
	if left, err := os.ReadDir(b.spool); err != nil || len(left) > 0 || b.countUploads(t) > 0 {
		t.Errorf("Put left the files %v (%v) and %d uploads, want none", left, err, b.countUploads(t))
	}
}

// TestPutAbortsUnfinishedUploads checks that Put aborts the unfinished uploads of the same name and no others.
func TestPutAbortsUnfinishedUploads(t *testing.T) {
	server := s3server.Start(t)
	b := connect(t, addressOf(server, "backups"), server.Key, server.Secret)
	for _, name := range []string{"ws_1/a", "ws_1/ab"} {
		id, err := b.core.NewMultipartUpload(t.Context(), "backups", name, minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		part := minio.PutObjectPartOptions{DisableContentSha256: true}
		if _, err := b.core.PutObjectPart(t.Context(), "backups", name, id, 1, strings.NewReader("part"), 4, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Put(t.Context(), "ws_1/a", writeNothing); err != nil || b.countUploads(t) != 1 {
		t.Errorf("Put returned %v and left %d uploads, want only the upload of ws_1/ab", err, b.countUploads(t))
	}
}

// wantUnusable checks that Put and Get fail with the code Unusable and a reason, that Put does not call write, and that Delete
// fails without a code.
func wantUnusable(t *testing.T, b *S3, reason string) {
	t.Helper()
	called := false
	err := b.Put(t.Context(), "ws_1/a", func(io.Writer) error { called = true; return nil })
	check := func(operation string, err error) {
		t.Helper()
		var refusal *entity.Error
		if !errors.As(err, &refusal) || refusal.Code != Unusable || !strings.Contains(refusal.Message, reason) {
			t.Errorf("%s returned %v, want the code %s and the reason %q", operation, err, Unusable, reason)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s returned an error that contains the secret", operation)
		}
	}
	check("Put", err)
	if called {
		t.Error("Put called write, although the bucket is unusable")
	}
	_, err = b.Get(t.Context(), "ws_1/a")
	check("Get", err)
	if err := b.Delete(t.Context(), "ws_1/a"); err == nil || entity.IsRefusal(err) {
		t.Errorf("Delete returned %v, want an error without a code", err)
	}
}

func TestUnusableBucket(t *testing.T) {
	server := s3server.Start(t)
	for name, test := range map[string]struct{ address, key, secret, reason string }{
		"wrong_key":                     {addressOf(server, "backups"), "wrongkey", server.Secret, "No user exists with the provided access key ID"},
		"wrong_secret":                  {addressOf(server, "backups"), server.Key, "wrongsecret", "SignatureDoesNotMatch"},
		"missing_bucket":                {addressOf(server, "absent"), server.Key, server.Secret, "NoSuchBucket"},
		"https_instead_of_http":         {"s3://backups?region=us-east-1&endpoint=https://" + server.Endpoint, server.Key, server.Secret, "server gave HTTP response to HTTPS client"},
		"unknown_host":                  {"s3://backups?region=us-east-1&endpoint=http://absent.invalid", "k", "secret", "absent.invalid"},
		"missing_bucket_without_region": {"s3://absent?endpoint=http://" + server.Endpoint, server.Key, server.Secret, "NoSuchBucket"},
		"unknown_region":                {"s3://backups?region=nowhere&endpoint=http://" + server.Endpoint, server.Key, server.Secret, "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			wantUnusable(t, connect(t, test.address, test.key, test.secret), test.reason)
		})
	}
}

// TestMissingCredentials checks that an operation without credentials fails before it sends a request, with an error that says
// how to supply them.
func TestMissingCredentials(t *testing.T) {
	metadata := httptest.NewServer(http.NotFoundHandler()) // the metadata service of a container without a role
	defer metadata.Close()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.URL)
	b := connect(t, "s3://backups?region=us-east-1&endpoint=http://127.0.0.1:1", "", "")
	_, err := b.Get(t.Context(), "a")
	var refusal *entity.Error
	if !errors.As(err, &refusal) || refusal.Code != Unusable || !strings.Contains(refusal.Message, "no credentials were found: set AWS_ACCESS_KEY_ID") {
		t.Errorf("Get returned %v, want the code %s and advice on credentials", err, Unusable)
	}
}

func TestClosedPort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	wantUnusable(t, connect(t, "s3://backups?region=us-east-1&endpoint=http://"+listener.Addr().String(), "k", "secret"), "connection refused")
}

// TestServerWithoutAnswer checks that operations fail after beginTimeout if the server accepts connections and never answers,
// with HTTP and with HTTPS.
func TestServerWithoutAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if defaultBeginTimeout > 40*time.Second {
		t.Errorf("an operation may wait %s for its first answer, want at most 40s", defaultBeginTimeout)
	}
	for _, scheme := range []string{"http", "https"} {
		b := connect(t, "s3://backups?region=us-east-1&endpoint="+scheme+"://"+listener.Addr().String(), "k", "secret")
		b.beginTimeout = 300 * time.Millisecond
		wantUnusable(t, b, "no answer within 300ms")
	}
}

// TestCancelledContext checks that Put returns the error of a cancelled context, and not the code Unusable.
func TestCancelledContext(t *testing.T) {
	b := connect(t, "s3://backups?region=us-east-1&endpoint=http://127.0.0.1:1", "k", "secret")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Put(ctx, "a", writeNothing); !errors.Is(err, context.Canceled) || entity.IsRefusal(err) {
		t.Errorf("Put returned %v, want context.Canceled without a code", err)
	}
}

// TestStalledObject checks that a read fails with errStalled, which has no code, when the server stops sending bytes.
func TestStalledObject(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		io.WriteString(w, "the first bytes")
		w.(http.Flusher).Flush()
		<-release
	}))
	defer server.Close()
	defer close(release)
	b := connect(t, "s3://backups?region=us-east-1&endpoint="+server.URL, "k", "secret")
	object, err := b.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	object.(*stallReader).timeout = 50 * time.Millisecond
	got, err := io.ReadAll(object)
	if string(got) != "the first bytes" || !errors.Is(err, errStalled) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read %q and the error %v, want the first bytes and errStalled", got, err)
	}
}
