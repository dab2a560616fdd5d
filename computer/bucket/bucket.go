// Package bucket stores objects under names, in a folder or in S3.
//
//	file:///srv/backups                     a folder; see Folder
//	s3://backups?region=eu-central-1        a bucket of S3, or of a server that speaks its protocol; see S3
//
// Parse checks such an address without reaching for what it names, and Address.Open opens the bucket. An object appears
// whole or not at all. No operation waits without a bound for a server that does not answer: what cannot be begun within
// half a minute fails with an entity.Error of the code Unusable, whose message gives the reason.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// Unusable is the code of a refusal by a bucket that cannot be reached or does not admit the node. The operation had no
// effect.
const Unusable entity.Code = "bucket_unusable"

// Bucket stores objects. Its methods may be called at the same time for different names. Names are slash-separated paths
// of ASCII letters, digits, dots, dashes and underscores.
type Bucket interface {
	// Put stores what write writes as the object of a name, in place of one that is there. When write or anything else
	// fails, the object is as it was before, and Put returns the error. When Put returns nil, the object is durable.
	Put(ctx context.Context, name string, write func(to io.Writer) error) error
	// Get opens an object, which the caller closes. The error is fs.ErrNotExist where there is none of the name.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete removes an object. It is no error that there is none of the name.
	Delete(ctx context.Context, name string) error
	// Close ends idle connections. Operations under way must have ended.
	Close() error
}

// Address names a bucket.
type Address struct {
	// Folder is the path of a folder; empty: the bucket is one of S3.
	Folder string
	S3     S3Options
}

// Parse reads an address. The error says which part of it is not understood.
func Parse(text string) (Address, error) {
	at, err := url.Parse(text)
	switch {
	case err != nil:
		return Address{}, errors.New("it is no address") // what is wrong with it may contain a password
	case at.Scheme == "file" && at.Host == "" && at.Path != "" && at.User == nil:
		return Address{Folder: at.Path}, checkFolderQuery(at.Query())
	case at.Scheme == "s3" && at.Host != "" && at.Port() == "" && at.User == nil && strings.Trim(at.Path, "/") == "":
		options, err := parseS3(at.Host, at.Query())
		return Address{S3: options}, err
	}
	return Address{}, fmt.Errorf("%q is neither s3://BUCKET?region=REGION nor file:///DIR", at.Redacted())
}

// checkFolderQuery accepts the parameters that say what is done anyway. They were valid with the library that opened
// folders before.
func checkFolderQuery(query url.Values) error {
	redundant := map[string]string{"create_dir": "true", "no_tmp_dir": "true", "metadata": "skip"}
	for name, values := range query {
		if want, known := redundant[name]; !known || slices.ContainsFunc(values, func(v string) bool { return v != want }) {
			return fmt.Errorf("a folder has no parameter %s=%s", name, strings.Join(values, ","))
		}
	}
	return nil
}

// Open opens the bucket. It creates a folder that does not exist, and does not reach for S3. spool is the folder in which
// large parts of uploads to S3 lie while they are sent.
func (a Address) Open(spool string) (Bucket, error) {
	if a.Folder != "" {
		return OpenFolder(a.Folder)
	}
	return OpenS3(a.S3, spool)
}
