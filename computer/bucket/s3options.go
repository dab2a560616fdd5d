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

// S3Options say which bucket of which server is used, and how.
type S3Options struct {
	Bucket string
	// Region is the bucket's; empty: AWS_REGION or AWS_DEFAULT_REGION, and where they are not set, the server is asked.
	Region string
	// Endpoint is the server's host, with its port where that is not the protocol's. Amazon's is "s3.amazonaws.com",
	// from which the region's follows.
	Endpoint string
	// Insecure: HTTP in place of HTTPS.
	Insecure bool
	// Profile is of the files of credentials; empty: AWS_PROFILE, or else "default".
	Profile string
	// Anonymous: requests are not signed.
	Anonymous bool
	// DualStack: Amazon's hosts that have IPv6 addresses as well.
	DualStack bool
	// lookup says whether the bucket is named in the host or in the path of a request.
	lookup minio.BucketLookupType
	// encryption is what the server is asked to encrypt objects with; nil: what the bucket is set to.
	encryption encrypt.ServerSide
}

const amazon = "s3.amazonaws.com"

// s3Parameters are the parameters of an s3:// address.
var s3Parameters = map[string]func(o *S3Options, value string) error{
	"region":   func(o *S3Options, value string) error { o.Region = value; return nil },
	"profile":  func(o *S3Options, value string) error { o.Profile = value; return nil },
	"endpoint": (*S3Options).setEndpoint,
	// Whatever the endpoint says; see parseS3.
	"disable_https":    func(_ *S3Options, value string) error { _, err := strconv.ParseBool(value); return err },
	"anonymous":        func(o *S3Options, value string) (err error) { o.Anonymous, err = strconv.ParseBool(value); return err },
	"dualstack":        func(o *S3Options, value string) (err error) { o.DualStack, err = strconv.ParseBool(value); return err },
	"use_path_style":   (*S3Options).setPathStyle,
	"s3ForcePathStyle": (*S3Options).setPathStyle,
	"ssetype":          (*S3Options).setEncryption,
	"kmskeyid":         func(*S3Options, string) error { return nil }, // read with ssetype
}

// parseS3 reads the bucket and the parameters of an address. What the environment says about regions and endpoints counts
// where the address says nothing, as for AWS's own tools.
func parseS3(bucket string, query url.Values) (S3Options, error) {
	o := S3Options{
		Bucket: bucket, Endpoint: amazon, Region: cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
	}
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return o, fmt.Errorf("%q is no name of a bucket: %w", bucket, err)
	}
	if at := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")); at != "" && !query.Has("endpoint") {
		if err := o.setEndpoint(at); err != nil {
			return o, fmt.Errorf("AWS_ENDPOINT_URL: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set, known := s3Parameters[name]
		if !known {
			names := strings.Join(slices.Sorted(maps.Keys(s3Parameters)), ", ")
			return o, fmt.Errorf("an s3:// address has no parameter %q; it has %s", name, names)
		}
		value := query.Get(name)
		if len(query[name]) != 1 || value == "" {
			return o, fmt.Errorf("the parameter %s must have one value", name)
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

// setEndpoint takes a URL, or a host, which is spoken to by HTTPS.
func (o *S3Options) setEndpoint(value string) error {
	if !strings.Contains(value, "://") {
		value = "https://" + value
	}
	at, err := url.Parse(value)
	if err != nil {
		return err
	}
	if at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || strings.Trim(at.Path, "/") != "" || at.RawQuery != "" || at.User != nil {
		return errors.New("it is not of the form http://HOST:PORT or https://HOST:PORT")
	}
	o.Endpoint, o.Insecure = at.Host, at.Scheme == "http"
	return nil
}

func (o *S3Options) setPathStyle(value string) error {
	inPath, err := strconv.ParseBool(value)
	o.lookup = minio.BucketLookupDNS
	if inPath {
		o.lookup = minio.BucketLookupPath
	}
	return err
}

func (o *S3Options) setEncryption(value string) error {
	if !strings.EqualFold(value, "AES256") && !strings.EqualFold(value, "aws:kms") {
		return errors.New("it is neither AES256 nor aws:kms")
	}
	return nil
}

// encryptWith sets the encryption that the parameters ask for.
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
