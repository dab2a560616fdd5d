// Package bucket stores named objects in a folder or in an S3 bucket.
//
//	file:///srv/backups                     a folder; see Folder
//	s3://backups?region=eu-central-1        a bucket of Amazon S3 or of an S3-compatible server; see S3
//
// Parse validates such an address without opening a folder or a connection, and Address.Open opens the bucket. An object is
// stored completely or not at all. No operation waits forever for a server that does not answer: an operation that gets no
// first answer within 30 seconds fails with an entity.Error that has the code Unusable and gives the reason.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// Unusable is the error code of an operation on a bucket that cannot be reached or that refuses the node's credentials. The
// operation had no effect.
const Unusable entity.Code = "bucket_unusable"

// Bucket stores objects. Its methods may be called concurrently for different names. A name is a slash-separated path of
// ASCII letters, digits, dots, dashes and underscores.
type Bucket interface {
	// Put stores the bytes that write produces under the name and replaces an existing object. When Put returns nil, the
	// object is durable. If write or a later step fails, Put returns that error and leaves an existing object unchanged.
	Put(ctx context.Context, name string, write func(to io.Writer) error) error
	// Get opens an object. The caller must close it. Get returns fs.ErrNotExist if the bucket has no such object.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete removes an object. It returns nil if the bucket has no such object.
	Delete(ctx context.Context, name string) error
	// Close closes idle connections. All other calls must have returned before.
	Close() error
}

// Address identifies a bucket.
type Address struct {
	// Folder is the path of a folder; empty: S3 describes the bucket.
	Folder string
	// S3 describes an S3 bucket. It is ignored if Folder is set.
	S3 S3Options
}

// Parse parses an address. It returns an error that names the invalid part. The error contains no password.
func Parse(text string) (Address, error) {
	at, err := url.Parse(text)
	switch {
	case err != nil:
		return Address{}, errors.New("the address is not a valid URL") // url.Parse's error may quote a password
	case at.Scheme == "file" && at.Host == "" && at.Path != "" && at.User == nil:
		return Address{Folder: at.Path}, checkFolderQuery(at.Query())
	case at.Scheme == "s3" && at.Host != "" && at.Port() == "" && at.User == nil && strings.Trim(at.Path, "/") == "":
		options, err := parseS3(at.Host, at.Query())
		return Address{S3: options}, err
	}
	return Address{}, fmt.Errorf("%q is neither s3://BUCKET?region=REGION nor file:///DIR", at.Redacted())
}

// checkFolderQuery returns an error for a parameter that a folder does not have. It accepts the parameters that earlier
// versions needed for the behavior that is now fixed, so that their addresses stay valid.
func checkFolderQuery(query url.Values) error {
	redundant := map[string]string{"create_dir": "true", "no_tmp_dir": "true", "metadata": "skip"}
	for name, values := range query {
		if want, known := redundant[name]; !known || slices.ContainsFunc(values, func(v string) bool { return v != want }) {
			return fmt.Errorf("a file:// address has no parameter %s=%s: remove it", name, strings.Join(values, ","))
		}
	}
	return nil
}

// Open opens the bucket. It creates a folder that does not exist. For S3 it sends no request; spool is the folder for the
// temporary files of large parts of uploads.
func (a Address) Open(spool string) (Bucket, error) {
	if a.Folder != "" {
		return OpenFolder(a.Folder)
	}
	return OpenS3(a.S3, spool)
}

// RemoveTemporaryFiles removes the unfinished objects of a folder and the parts of uploads that an earlier process has left in
// dir. No process may be writing there.
func RemoveTemporaryFiles(dir string) error {
	folder := os.DirFS(dir) // matches names below dir, so that dir itself is not read as a pattern
	objects, err := fs.Glob(folder, "*/*.tmp")
	parts, partsErr := fs.Glob(folder, partPattern)
	err = errors.Join(err, partsErr)
	for _, name := range append(objects, parts...) {
		err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
	}
	return err
}
