package bucket

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// S3Options identify an S3 bucket and say how to access it.
type S3Options struct {
	// Bucket is the name of the bucket.
	Bucket string
	// Region is the region of the bucket. parseS3 takes the default from AWS_REGION or AWS_DEFAULT_REGION; empty: the client
	// asks the server for the region.
	Region string
	// Endpoint is the host of the server, followed by its port if that is not the default port of the protocol. The client
	// replaces "s3.amazonaws.com" by the host of the region.
	Endpoint string
	// Insecure selects HTTP instead of HTTPS.
	Insecure bool
	// Profile is the profile to read from the credentials file; empty: AWS_PROFILE, or "default" if that is not set.
	Profile string
	// Anonymous sends requests without a signature.
	Anonymous bool
	// DualStack selects the hosts of Amazon that have both IPv4 and IPv6 addresses.
	DualStack bool
	// lookup selects whether a request names the bucket in its host or in its path.
	lookup minio.BucketLookupType
	// encryption is the server-side encryption that uploads request; nil: the default of the bucket.
	encryption encrypt.ServerSide
}

// amazon is the default endpoint.
const amazon = "s3.amazonaws.com"

// s3Parameters maps each parameter of an s3:// address to the function that validates and stores its value.
var s3Parameters = map[string]func(o *S3Options, value string) error{
	"region":   func(o *S3Options, value string) error { o.Region = value; return nil },
	"profile":  func(o *S3Options, value string) error { o.Profile = value; return nil },
	"endpoint": (*S3Options).setEndpoint,
	// Only validated here. parseS3 applies it last, because it overrides the scheme of the endpoint.
	"disable_https":    func(_ *S3Options, value string) error { _, err := strconv.ParseBool(value); return err },
	"anonymous":        func(o *S3Options, value string) (err error) { o.Anonymous, err = strconv.ParseBool(value); return err },
	"dualstack":        func(o *S3Options, value string) (err error) { o.DualStack, err = strconv.ParseBool(value); return err },
	"use_path_style":   (*S3Options).setPathStyle,
	"s3ForcePathStyle": (*S3Options).setPathStyle,
	"ssetype":          (*S3Options).setEncryption,
	"kmskeyid":         func(*S3Options, string) error { return nil }, // parseS3 reads it together with ssetype
}

// parseS3 returns the options for the bucket name and the parameters of an address. The environment variables of the AWS
// command line supply a region and an endpoint that the address does not give. It returns an error that names the first
// invalid part.
func parseS3(bucket string, query url.Values) (S3Options, error) {
	o := S3Options{
		Bucket: bucket, Endpoint: amazon, Region: cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
	}
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return o, fmt.Errorf("%q is not a valid bucket name: %w", bucket, err)
	}
	if at := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")); at != "" && !query.Has("endpoint") {
		if err := o.setEndpoint(at); err != nil {
			return o, fmt.Errorf("the environment variable AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set, known := s3Parameters[name]
		if !known {
			names := strings.Join(slices.Sorted(maps.Keys(s3Parameters)), ", ")
			return o, fmt.Errorf("an s3:// address has no parameter %q: use only %s", name, names)
		}
		value := query.Get(name)
		if len(query[name]) != 1 || value == "" {
			return o, fmt.Errorf("the parameter %s must have exactly one value", name)
		}
		if err := set(&o, value); err != nil {
			return o, fmt.Errorf("the parameter %s=%s: %w", name, value, err)
		}
	}
	if insecure, err := strconv.ParseBool(query.Get("disable_https")); err == nil && insecure {
		o.Insecure = true
	}
	return o, o.encryptWith(query.Get("ssetype"), query.Get("kmskeyid"))
}

// setEndpoint sets Endpoint and Insecure from a URL, or from a host without a scheme. A host without a scheme selects HTTPS.
func (o *S3Options) setEndpoint(value string) error {
	if !strings.Contains(value, "://") {
		value = "https://" + value
	}
	at, err := url.Parse(value)
	if err != nil {
		return err
	}
	if at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || strings.Trim(at.Path, "/") != "" || at.RawQuery != "" || at.User != nil {
		return errors.New("it must have the form http://HOST:PORT or https://HOST:PORT")
	}
	o.Endpoint, o.Insecure = at.Host, at.Scheme == "http"
	return nil
}

// setPathStyle selects requests with the bucket in the path, or in the host if value is false.
func (o *S3Options) setPathStyle(value string) error {
	inPath, err := strconv.ParseBool(value)
	o.lookup = minio.BucketLookupDNS
	if inPath {
		o.lookup = minio.BucketLookupPath
	}
	return err
}

// setEncryption validates a type of encryption. encryptWith sets it, together with the key.
func (o *S3Options) setEncryption(value string) error {
	if !strings.EqualFold(value, "AES256") && !strings.EqualFold(value, "aws:kms") {
		return errors.New("it must be AES256 or aws:kms")
	}
	return nil
}

// encryptWith sets the server-side encryption from the parameters ssetype and kmskeyid. It fails if there is a key and the
// type is not aws:kms.
func (o *S3Options) encryptWith(kind, key string) (err error) {
	switch {
	case strings.EqualFold(kind, "AES256") && key == "":
		o.encryption = encrypt.NewSSE()
	case strings.EqualFold(kind, "aws:kms"):
		o.encryption, err = encrypt.NewSSEKMS(key, nil)
	case key != "":
		err = errors.New("the parameter kmskeyid needs ssetype=aws:kms")
	}
	return err
}
