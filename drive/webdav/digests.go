package webdav

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"hash/adler32"
	"io"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// A digest is a checksum that a request announces for its content.
type digest struct {
	header string
	hash   hash.Hash
	want   []byte
}

// hashes are the algorithms of digests, by the names of RFC 3230, RFC 9530 and ownCloud in lower case. The content is not compared with
// digests of other algorithms.
var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha": sha1.New, "sha1": sha1.New, "sha-256": sha256.New, "sha256": sha256.New, "sha-512": sha512.New,
	"adler32": func() hash.Hash { return adler32.New() },
}

// digests returns the checksums of the content that a request announces by Content-MD5 (RFC 1864), Digest (RFC 3230), Content-Digest and
// Repr-Digest (RFC 9530), and OC-Checksum (ownCloud). It returns InvalidRequest for a malformed header.
func digests(header http.Header) (wanted []digest, err error) {
	add := func(name, algorithm, text string, decode func(string) ([]byte, error)) {
		newHash := hashes[strings.ToLower(strings.TrimSpace(algorithm))]
		if newHash == nil || err != nil {
			return
		}
		d := digest{header: name, hash: newHash()}
		if d.want, err = decode(strings.TrimSpace(text)); err == nil && len(d.want) != d.hash.Size() {
			err = errMalformed
		}
		if err != nil {
			err = entity.Errorf(entity.InvalidRequest, "the %s header is malformed", name)
		}
		wanted = append(wanted, d)
	}
	decodeBase64 := base64.StdEncoding.DecodeString
	for _, value := range header.Values("Content-MD5") {
		add("Content-MD5", "md5", value, decodeBase64)
	}
	for part := range parts(header, "Digest", ",") {
		algorithm, text, _ := strings.Cut(part, "=")
		add("Digest", algorithm, text, decodeBase64)
	}
	for _, name := range []string{"Content-Digest", "Repr-Digest"} {
		for part := range parts(header, name, ",") {
			algorithm, text, _ := strings.Cut(part, "=")
			add(name, algorithm, text, decodeBytes)
		}
	}
	for part := range parts(header, "OC-Checksum", " ") {
		algorithm, text, _ := strings.Cut(part, ":")
		add("OC-Checksum", algorithm, text, hex.DecodeString)
	}
	return wanted, err
}

var errMalformed = entity.Errorf(entity.InvalidRequest, "malformed")

// parts returns the parts of all values of a header that are not empty.
func parts(header http.Header, name, separator string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(strings.Join(header.Values(name), separator), separator) {
			if part = strings.TrimSpace(part); part != "" && !yield(part) {
				return
			}
		}
	}
}

// decodeBytes decodes a byte sequence of RFC 8941, section 3.3.5, without its parameters.
func decodeBytes(text string) ([]byte, error) {
	text, _, _ = strings.Cut(text, ";")
	text = strings.TrimSpace(text)
	if len(text) < 2 || text[0] != ':' || text[len(text)-1] != ':' {
		return nil, errMalformed
	}
	return base64.StdEncoding.DecodeString(text[1 : len(text)-1])
}

// A verifier reads content, and fails at its end if a digest differs.
type verifier struct {
	io.Reader
	digests []digest
}

func (v verifier) Read(p []byte) (int, error) {
	n, err := v.Reader.Read(p)
	for _, d := range v.digests {
		d.hash.Write(p[:n])
	}
	if err != io.EOF {
		return n, err
	}
	for _, d := range v.digests {
		if !bytes.Equal(d.hash.Sum(nil), d.want) {
			return n, entity.Errorf(drive.Broken, "the content does not have the checksum in the %s header", d.header)
		}
	}
	return n, err
}
