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

// A checksum is what a header says of the content: its sum by an algorithm.
type checksum struct {
	header, algorithm string
	sum               []byte
}

// hashes are the algorithms whose checksums are compared, by the names of RFC 3230 and RFC 9530 in lower case. adler32 is an algorithm of
// OC-Checksum only.
var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha": sha1.New, "sha-256": sha256.New, "sha-512": sha512.New, "adler32": func() hash.Hash { return adler32.New() },
}

// ownCloudNames are the algorithms of OC-Checksum by its names in lower case.
var ownCloudNames = map[string]string{"md5": "md5", "sha1": "sha", "sha256": "sha-256", "adler32": "adler32"}

// checksums returns the checksums of the content that a request announces by Content-MD5 (RFC 1864), Digest (RFC 3230), Content-Digest and
// Repr-Digest (RFC 9530), and OC-Checksum (ownCloud). It leaves out other algorithms, and returns InvalidRequest for a malformed header.
func checksums(header http.Header) (announced []checksum, err error) {
	add := func(name, algorithm, text string, decode func(string) ([]byte, error)) {
		newHash := hashes[algorithm]
		if newHash == nil || err != nil {
			return
		}
		sum, failed := decode(strings.TrimSpace(text))
		if failed != nil || len(sum) != newHash().Size() {
			err = entity.Errorf(entity.InvalidRequest, "the %s header is malformed", name)
			return
		}
		announced = append(announced, checksum{name, algorithm, sum})
	}
	standard := func(name, part string, decode func(string) ([]byte, error)) {
		algorithm, text, _ := strings.Cut(part, "=")
		if algorithm = strings.ToLower(strings.TrimSpace(algorithm)); algorithm != "adler32" {
			add(name, algorithm, text, decode)
		}
	}
	for _, value := range header.Values("Content-MD5") {
		add("Content-MD5", "md5", value, base64.StdEncoding.DecodeString)
	}
	for part := range parts(header, "Digest", ",") {
		standard("Digest", part, base64.StdEncoding.DecodeString)
	}
	for _, name := range []string{"Content-Digest", "Repr-Digest"} {
		for part := range parts(header, name, ",") {
			standard(name, part, decodeBytes)
		}
	}
	for part := range parts(header, "OC-Checksum", " ") {
		algorithm, text, _ := strings.Cut(part, ":")
		algorithm = ownCloudNames[strings.ToLower(algorithm)]
		if algorithm == "adler32" && len(text) < 8 { // some clients leave out leading zeros
			text = strings.Repeat("0", 8-len(text)) + text
		}
		add("OC-Checksum", algorithm, text, hex.DecodeString)
	}
	return announced, err
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

// A verifier reads content, and fails at its end if a checksum differs.
type verifier struct {
	io.Reader
	announced []checksum
	// sums has one hash for each announced algorithm, whatever the number of checksums is.
	sums map[string]hash.Hash
}

func newVerifier(content io.Reader, announced []checksum) verifier {
	v := verifier{Reader: content, announced: announced, sums: map[string]hash.Hash{}}
	for _, c := range announced {
		if v.sums[c.algorithm] == nil {
			v.sums[c.algorithm] = hashes[c.algorithm]()
		}
	}
	return v
}

func (v verifier) Read(p []byte) (int, error) {
	n, err := v.Reader.Read(p)
	for _, sum := range v.sums {
		sum.Write(p[:n])
	}
	if err != io.EOF {
		return n, err
	}
	for _, c := range v.announced {
		if !bytes.Equal(v.sums[c.algorithm].Sum(nil), c.sum) {
			return n, entity.Errorf(drive.Broken, "the content does not have the checksum in the %s header", c.header)
		}
	}
	return n, err
}
