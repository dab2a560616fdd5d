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

// S3 is a Bucket of Amazon's S3, or of a server that speaks its protocol.
//
// Credentials are looked for where AWS's tools do: in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN), in the files below ~/.aws, and at the role of the container or the machine. They need the
// permissions s3:PutObject, s3:GetObject, s3:DeleteObject and s3:AbortMultipartUpload; with
// s3:ListBucketMultipartUploads, what an attempt that was cut off has left is removed by the next one.
type S3 struct {
	core      minio.Core
	creds     *credentials.Credentials
	options   S3Options
	transport *transport
	// spool is the folder of large parts; schedule has the sizes of parts.
	spool    string
	schedule schedule
	// patience is how long the first answer of an operation may take in all.
	patience time.Duration
}

var _ Bucket = (*S3)(nil)

const (
	// attempts is how often a request is sent at most.
	attempts = 3
	// patience leaves three attempts to connect their time.
	patience = 30 * time.Second
)

// OpenS3 returns a bucket of S3. Nothing is sent yet. spool is the folder in which large parts lie while they are sent.
func OpenS3(o S3Options, spool string) (*S3, error) {
	transport := newTransport()
	creds := credentialsOf(o)
	core, err := minio.NewCore(o.Endpoint, &minio.Options{
		Creds: creds, Secure: !o.Insecure, Transport: transport, Region: o.Region, BucketLookup: o.lookup, MaxRetries: attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("the S3 bucket %s at %s: %w", o.Bucket, o.Endpoint, err)
	}
	core.SetS3EnableDualstack(o.DualStack)
	core.SetAppInfo("atelier", "backups")
	return &S3{*core, creds, o, transport, spool, defaultSchedule, patience}, nil
}

// credentialsOf returns the credentials, which are looked for when they are needed.
func credentialsOf(o S3Options) *credentials.Credentials {
	if o.Anonymous {
		return credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	}
	providers := []credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{Profile: o.Profile},
		&credentials.IAM{Client: &http.Client{Timeout: metadataTime}},
	}
	if o.Profile != "" { // it was named, so it counts before what the environment has
		providers = providers[1:2]
	}
	return credentials.NewChainCredentials(providers)
}

// metadataTime bounds a request to the service that has the role of the container or the machine. Outside of clouds, no
// such service answers.
const metadataTime = 5 * time.Second

// errNoCredentials says where credentials were looked for.
var errNoCredentials = errors.New("there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in " +
	"~/.aws/credentials, or give this machine a role")

// begin runs the first request of an operation within the bucket's patience. It returns the error of ctx if ctx has ended,
// fs.ErrNotExist if the object is absent, and an entity.Error with the code Unusable for every other failure.
func (s *S3) begin(ctx context.Context, request func(ctx context.Context) error) error {
	began, cancel := context.WithTimeout(ctx, s.patience)
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
	case absent(err):
		return fs.ErrNotExist
	case began.Err() != nil:
		err = fmt.Errorf("no answer within %s", s.patience)
	}
	return entity.Errorf(Unusable, "the S3 bucket %s at %s cannot be used: %s", s.options.Bucket, s.options.Endpoint, describe(err))
}

// checkCredentials returns errNoCredentials if requests would be sent without a signature.
func (s *S3) checkCredentials(ctx context.Context) error {
	value, err := s.creds.GetWithContext(&credentials.CredContext{Client: http.DefaultClient, Context: ctx})
	if err == nil && value.AccessKeyID == "" && !s.options.Anonymous {
		err = errNoCredentials
	}
	return err
}

// absent reports whether an error says that there is no such object, in a bucket that exists.
func absent(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && answer.Code == minio.NoSuchKey
}

// describe returns what an error says, without the address of the request, which is long.
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

// failed is the error of a later request, which may succeed when it is tried again.
func (s *S3) failed(what string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("the S3 bucket %s at %s: %s: %s", s.options.Bucket, s.options.Endpoint, what, describe(err))
}

// Get is of Bucket. Reading fails when nothing arrives for stallTime.
func (s *S3) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	// The context of the request outlives begin's, since it is also that of the body.
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
	return &watched{ReadCloser: body, ctx: reading, cancel: cancel, patience: stallTime}, nil
}

var errStalled = errors.New("nothing arrived for " + stallTime.String())

// watched is a body whose reads do not wait for longer than a time.
type watched struct {
	io.ReadCloser
	ctx      context.Context
	cancel   context.CancelCauseFunc
	patience time.Duration
}

func (w *watched) Read(into []byte) (int, error) {
	timer := time.AfterFunc(w.patience, func() { w.cancel(errStalled) })
	n, err := w.ReadCloser.Read(into)
	timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && context.Cause(w.ctx) == errStalled { //nolint:errorlint // it is never wrapped
		err = errStalled
	}
	return n, err
}

func (w *watched) Close() error {
	w.cancel(nil)
	return w.ReadCloser.Close()
}

// Delete is of Bucket.
func (s *S3) Delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	if err := s.core.RemoveObject(ctx, s.options.Bucket, name, minio.RemoveObjectOptions{}); err != nil && !absent(err) {
		return s.failed("an object cannot be deleted", err)
	}
	return nil
}

// Close is of Bucket.
func (s *S3) Close() error {
	s.transport.close()
	return nil
}

// unlinked returns a file without a name in a folder, which is gone when it is closed.
func unlinked(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(dir, "part-*.tmp")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}
