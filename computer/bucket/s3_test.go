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
	s3server "github.com/atelier-run/atelier/tests/s3"
)

// connect opens the bucket of an address with credentials, and closes it with the test.
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

func of(s *s3server.Server, bucket string) string {
	return "s3://" + bucket + "?region=us-east-1&endpoint=http://" + s.Endpoint
}

// pending are the uploads that the server keeps parts of.
func (s *S3) pending(t *testing.T) int {
	t.Helper()
	found, err := s.core.ListMultipartUploads(t.Context(), s.options.Bucket, "", "", "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return len(found.Uploads)
}

func nothing(io.Writer) error { return nil }

// An upload of many parts, which become larger than what a part may take in memory, arrives as it was written.
func TestManyParts(t *testing.T) {
	server := s3server.Start(t)
	b := connect(t, of(server, "backups"), server.Key, server.Secret)
	b.schedule = schedule{first: 5 << 20, growth: 30, unit: 1 << 20, parts: 60}
	const size = 300<<20 + 7
	if size/b.schedule.first < 60 {
		t.Fatal("parts of the first size would do")
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
		t.Errorf("%d bytes of %d, %v", n, size, err)
	}
	if left, err := os.ReadDir(b.spool); err != nil || len(left) > 0 || b.pending(t) > 0 {
		t.Errorf("left behind: %v, %v, %d uploads", left, err, b.pending(t))
	}
}

// What an attempt that was cut off has left is removed by the next, and by it alone.
func TestUnfinishedUploads(t *testing.T) {
	server := s3server.Start(t)
	b := connect(t, of(server, "backups"), server.Key, server.Secret)
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
	if err := b.Put(t.Context(), "ws_1/a", nothing); err != nil || b.pending(t) != 1 {
		t.Errorf("%v, %d uploads are left", err, b.pending(t))
	}
}

func wantUnusable(t *testing.T, b *S3, reason string) {
	t.Helper()
	called := false
	began := time.Now()
	err := b.Put(t.Context(), "ws_1/a", func(io.Writer) error { called = true; return nil })
	check := func(what string, err error) {
		t.Helper()
		var refusal *entity.Error
		if !errors.As(err, &refusal) || refusal.Code != Unusable || !strings.Contains(refusal.Message, reason) {
			t.Errorf("%s: %v, want %q", what, err, reason)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the secret", what)
		}
	}
	check("put", err)
	if called {
		t.Error("the content was asked for")
	}
	_, err = b.Get(t.Context(), "ws_1/a")
	check("get", err)
	if err := b.Delete(t.Context(), "ws_1/a"); err == nil || entity.IsRefusal(err) {
		t.Errorf("delete: %v", err)
	}
	if took := time.Since(began); took > 3*time.Minute {
		t.Errorf("three operations took %s", took)
	}
}

func TestWrongSettings(t *testing.T) {
	server := s3server.Start(t)
	for name, test := range map[string]struct{ address, key, secret, reason string }{
		"a wrong key":        {of(server, "backups"), "wrongkey", server.Secret, "No user exists with the provided access key ID"},
		"a wrong secret":     {of(server, "backups"), server.Key, "wrongsecret", "SignatureDoesNotMatch"},
		"an absent bucket":   {of(server, "absent"), server.Key, server.Secret, "NoSuchBucket"},
		"HTTPS in its place": {"s3://backups?region=us-east-1&endpoint=https://" + server.Endpoint, server.Key, server.Secret, "server gave HTTP response to HTTPS client"},
		"an absent host":     {"s3://backups?region=us-east-1&endpoint=http://absent.invalid", "k", "secret", "absent.invalid"},
		"without a region":   {"s3://absent?endpoint=http://" + server.Endpoint, server.Key, server.Secret, "NoSuchBucket"},
		"a wrong region":     {"s3://backups?region=nowhere&endpoint=http://" + server.Endpoint, server.Key, server.Secret, "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			wantUnusable(t, connect(t, test.address, test.key, test.secret), test.reason)
		})
	}
}

// Where there are no credentials anywhere, the error says where they were looked for, and nothing is sent to the bucket.
func TestNoCredentials(t *testing.T) {
	nowhere := httptest.NewServer(http.NotFoundHandler()) // in place of the service that has a container's role
	defer nowhere.Close()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", nowhere.URL)
	b := connect(t, "s3://backups?region=us-east-1&endpoint=http://127.0.0.1:1", "", "")
	_, err := b.Get(t.Context(), "a")
	var refusal *entity.Error
	if !errors.As(err, &refusal) || refusal.Code != Unusable || !strings.Contains(refusal.Message, "there are no credentials: set AWS_ACCESS_KEY_ID") {
		t.Errorf("%v", err)
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

// A server that accepts connections and never answers is given up within the patience, by HTTP and by HTTPS.
func TestMuteServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if patience > 40*time.Second {
		t.Errorf("an operation may take %s to begin", patience)
	}
	for _, scheme := range []string{"http", "https"} {
		b := connect(t, "s3://backups?region=us-east-1&endpoint="+scheme+"://"+listener.Addr().String(), "k", "secret")
		b.patience = 300 * time.Millisecond
		wantUnusable(t, b, "no answer within 300ms")
	}
}

// The end of a task is not the bucket's fault.
func TestCallersEnd(t *testing.T) {
	b := connect(t, "s3://backups?region=us-east-1&endpoint=http://127.0.0.1:1", "k", "secret")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Put(ctx, "a", nothing); !errors.Is(err, context.Canceled) || entity.IsRefusal(err) {
		t.Errorf("%v", err)
	}
}

// An object whose bytes stop coming is given up, with an error that is no refusal.
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
	object.(*watched).patience = 50 * time.Millisecond
	got, err := io.ReadAll(object)
	if string(got) != "the first bytes" || !errors.Is(err, errStalled) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q, %v", got, err)
	}
}
