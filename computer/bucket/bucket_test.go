package bucket_test

import (
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer/bucket"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		folder, bucket, region, endpoint string
		insecure                         bool
	}{
		"file:///srv/backups":                                               {folder: "/srv/backups"},
		"file:///srv/backups?create_dir=true":                               {folder: "/srv/backups"},
		"s3://backups":                                                      {bucket: "backups", region: "env", endpoint: "s3.amazonaws.com"},
		"s3://backups?region=eu-central-1":                                  {bucket: "backups", region: "eu-central-1", endpoint: "s3.amazonaws.com"},
		"s3://b.2?region=a&endpoint=http://minio:9000":                      {bucket: "b.2", region: "a", endpoint: "minio:9000", insecure: true},
		"s3://backups?endpoint=https://minio&use_path_style=true":           {bucket: "backups", region: "env", endpoint: "minio"},
		"s3://backups?endpoint=minio:9000&disable_https=true":               {bucket: "backups", region: "env", endpoint: "minio:9000", insecure: true},
		"s3://backups?profile=p&s3ForcePathStyle=false&dualstack=true":      {bucket: "backups", region: "env", endpoint: "s3.amazonaws.com"},
		"s3://backups?ssetype=aws:kms&kmskeyid=arn:aws:kms:1&region=x":      {bucket: "backups", region: "x", endpoint: "s3.amazonaws.com"},
		"s3://backups?ssetype=AES256&region=x&anonymous=false":              {bucket: "backups", region: "x", endpoint: "s3.amazonaws.com"},
		"s3://backups/?region=eu-central-1&endpoint=http%3A%2F%2F10.0.0.1/": {bucket: "backups", region: "eu-central-1", endpoint: "10.0.0.1", insecure: true},
	} {
		t.Setenv("AWS_REGION", "env")
		got, err := bucket.Parse(text)
		if err != nil || got.Folder != want.folder || got.S3.Bucket != want.bucket || got.S3.Region != want.region ||
			got.S3.Endpoint != want.endpoint || got.S3.Insecure != want.insecure {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseReadsTheEndpointFromTheEnvironment(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://minio:9000")
	got, err := bucket.Parse("s3://backups")
	if err != nil || got.S3.Endpoint != "minio:9000" || !got.S3.Insecure {
		t.Errorf("without a parameter: %+v, %v; want the endpoint of the environment", got, err)
	}
	if got, err = bucket.Parse("s3://backups?endpoint=other"); err != nil || got.S3.Endpoint != "other" || got.S3.Insecure {
		t.Errorf("with a parameter: %+v, %v; want the endpoint of the address", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, reason := range map[string]string{
		"gs://bucket":                             `"gs://bucket" is neither`,
		"backups":                                 "is neither",
		"file://host/dir":                         "is neither",
		"file:///dir?base_url=x":                  "a file:// address has no parameter base_url=x: remove it",
		"file:///dir?metadata=write":              "a file:// address has no parameter metadata=write",
		"s3://key:secret@bucket":                  "is neither",
		"s3://bucket/prefix":                      "is neither",
		"s3://bucket:90\x7f:secret":               "the address is not a valid URL",
		"s3://b":                                  `"b" is not a valid bucket name`,
		"s3://backups?accelerate=true":            `has no parameter "accelerate": use only anonymous, disable_https`,
		"s3://backups?region":                     "the parameter region must have exactly one value",
		"s3://backups?region=a&region=b":          "the parameter region must have exactly one value",
		"s3://backups?use_path_style=perhaps":     "the parameter use_path_style=perhaps",
		"s3://backups?endpoint=http://host/path":  "it must have the form",
		"s3://backups?endpoint=ftp://host":        "it must have the form",
		"s3://backups?ssetype=aws:kms:dsse":       "it must be AES256 or aws:kms",
		"s3://backups?kmskeyid=k":                 "needs ssetype=aws:kms",
		"s3://backups?ssetype=AES256&kmskeyid=k":  "needs ssetype=aws:kms",
		"s3://backups?request_checksum=supported": "has no parameter",
	} {
		_, err := bucket.Parse(text)
		if err == nil || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Parse(%q) returned the error %v, want one with %q and without the secret", text, err, reason)
		}
	}
}
