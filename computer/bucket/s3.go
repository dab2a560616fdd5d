package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/atelier-run/atelier/entity"
)

// S3 is a Bucket in Amazon S3 or on an S3-compatible server.
//
// It looks up credentials in the same places as the AWS command line: the environment (AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), the file ~/.aws/credentials, and the role of the container or the machine. They
// need the permissions s3:PutObject, s3:GetObject, s3:DeleteObject and s3:AbortMultipartUpload. With the permission
// s3:ListBucketMultipartUploads, Put also aborts the uploads that an interrupted Put of the same name has left.
type S3 struct {
	core      minio.Core
	creds     *credentials.Credentials
	options   S3Options
	transport *transport
	// spool is the folder for the temporary files of large parts.
	spool string
	// schedule determines the sizes of the parts of an upload.
	schedule schedule
	// beginTimeout limits the time until the first response of an operation, all attempts included.
	beginTimeout time.Duration
}

var _ Bucket = (*S3)(nil)

// partPattern matches the temporary files of the parts of an upload.
const partPattern = "part-*.tmp"

const (
	// maxAttempts limits how often a request is sent.
	maxAttempts = 3
	// defaultBeginTimeout is long enough for maxAttempts connections that each take connectTime.
	defaultBeginTimeout = 30 * time.Second
)

// OpenS3 returns an S3 bucket without sending a request. spool is the folder for the temporary files of large parts. OpenS3
// fails if the endpoint is invalid.
func OpenS3(o S3Options, spool string) (*S3, error) {
	transport := newTransport()
	creds := newCredentials(o)
	core, err := minio.NewCore(o.Endpoint, &minio.Options{
		Creds: creds, Secure: !o.Insecure, Transport: transport, Region: o.Region, BucketLookup: o.lookup, MaxRetries: maxAttempts,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open the S3 bucket %s at %s: %w", o.Bucket, o.Endpoint, err)
	}
	core.SetS3EnableDualstack(o.DualStack)
	core.SetAppInfo("atelier", "backups")
	return &S3{
		core: *core, creds: creds, options: o, transport: transport,
		spool: spool, schedule: defaultSchedule, beginTimeout: defaultBeginTimeout,
	}, nil
}

// newCredentials returns credentials that are looked up when the first request needs them.
func newCredentials(o S3Options) *credentials.Credentials {
	if o.Anonymous {
		return credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	}
	providers := []credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{Profile: o.Profile},
		&credentials.IAM{Client: &http.Client{Timeout: metadataTimeout}},
	}
	if o.Profile != "" { // a named profile has precedence over the environment
		providers = providers[1:2]
	}
	return credentials.NewChainCredentials(providers)
}

// metadataTimeout limits a request to the metadata service, which returns the credentials of the container's or the machine's
// role. Outside of a cloud, no such service answers.
const metadataTimeout = 5 * time.Second

// errNoCredentials means that the bucket needs signed requests, and no source of credentials has any.
var errNoCredentials = errors.New("no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add a profile to " +
	"~/.aws/credentials, or give this machine a role")

// begin runs the first request of an operation and limits its time to beginTimeout. It returns the error of ctx if ctx has ended,
// fs.ErrNotExist if the object is absent, and an entity.Error with the code Unusable for every other failure.
func (s *S3) begin(ctx context.Context, request func(ctx context.Context) error) error {
	began, cancel := context.WithTimeout(ctx, s.beginTimeout)
	defer cancel()
	err := s.checkCredentials(began)
	if err == nil {
		err = request(began)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case isAbsent(err):
		return fs.ErrNotExist
	case began.Err() != nil:
		err = fmt.Errorf("no answer within %s", s.beginTimeout)
	}
	return entity.Errorf(Unusable, "the S3 bucket %s at %s cannot be used: %s", s.options.Bucket, s.options.Endpoint, describe(err))
}

// checkCredentials returns errNoCredentials if requests would be sent without a signature although they need one.
func (s *S3) checkCredentials(ctx context.Context) error {
	value, err := s.creds.GetWithContext(&credentials.CredContext{Client: http.DefaultClient, Context: ctx})
	if err == nil && value.AccessKeyID == "" && !s.options.Anonymous {
		err = errNoCredentials
	}
	return err
}

// isAbsent reports whether err means that the bucket exists and has no such object.
func isAbsent(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && answer.Code == minio.NoSuchKey
}

// describe returns the message of err without the URL of the request.
func describe(err error) string {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return fmt.Sprintf("%s (%s)", answer.Message, answer.Code)
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return err.Error()
}

// requestError returns the error of a request after the first one of an operation. It has no code, because a retry of the
// operation may succeed. action names the action that failed.
func (s *S3) requestError(action string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("the S3 bucket %s at %s: %s: %s", s.options.Bucket, s.options.Endpoint, action, describe(err))
}

// Get implements Bucket. A read of the object fails with errStalled if no bytes arrive for stallTime.
func (s *S3) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	// The body is read with the context of the request, which must therefore live longer than the context of begin.
	reading, cancel := context.WithCancelCause(ctx)
	var body io.ReadCloser
	err := s.begin(ctx, func(began context.Context) (err error) {
		stop := context.AfterFunc(began, func() { cancel(began.Err()) })
		defer stop()
		body, _, _, err = s.core.GetObject(reading, s.options.Bucket, name, minio.GetObjectOptions{})
		return err
	})
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &stallReader{ReadCloser: body, ctx: reading, cancel: cancel, timeout: stallTime}, nil
}

// errStalled means that the server stopped sending the bytes of an object.
var errStalled = errors.New("the S3 server sent no bytes of the object for " + stallTime.String())

// stallReader is the body of a response. It cancels the request when a read takes longer than timeout.
type stallReader struct {
	io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout time.Duration
}

// Read reads bytes of the body. It returns errStalled if none arrive in time.
func (w *stallReader) Read(into []byte) (int, error) {
	timer := time.AfterFunc(w.timeout, func() { w.cancel(errStalled) })
	n, err := w.ReadCloser.Read(into)
	timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && context.Cause(w.ctx) == errStalled { //nolint:errorlint // it is never wrapped
		err = errStalled
	}
	return n, err
}

// Close cancels the request and closes the body.
func (w *stallReader) Close() error {
	w.cancel(nil)
	return w.ReadCloser.Close()
}

// Delete implements Bucket. It fails if all attempts together take longer than beginTimeout.
func (s *S3) Delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, s.beginTimeout)
	defer cancel()
	if err := s.core.RemoveObject(ctx, s.options.Bucket, name, minio.RemoveObjectOptions{}); err != nil && !isAbsent(err) {
		return s.requestError("cannot delete the object "+name, err)
	}
	return nil
}

// Close implements Bucket.
func (s *S3) Close() error {
	s.transport.close()
	return nil
}

// createUnlinked creates a file in dir and removes its name, so that the file disappears when it is closed or the process ends.
// It creates dir if it does not exist.
func createUnlinked(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(dir, partPattern)
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}
