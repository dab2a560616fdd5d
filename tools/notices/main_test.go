package main

import (
	"strings"
	"testing"

	"github.com/google/licenseclassifier/v2/assets"
)

func TestCheck(t *testing.T) {
	known, err := assets.DefaultClassifier()
	if err != nil {
		t.Fatal(err)
	}
	for file, refused := range map[string]string{
		"License/Apache-2.0/pristine.txt": "", "License/MIT/pristine.txt": "", "License/MPL-2.0/license.txt": "",
		"License/AGPL-3.0/license.txt": "which is not permitted", "License/GPL-3.0/license.txt": "which is not permitted", "none": "has no known license",
	} {
		t.Run(file, func(t *testing.T) {
			m := &module{path: "example.org/m", version: "v1.0.0", texts: map[string]string{"README": "All rights reserved."}}
			if file != "none" {
				text, err := assets.ReadLicenseFile(file)
				if err != nil {
					t.Fatal(err)
				}
				m.texts["LICENSE"] = normalize(string(text))
			}
			m.classify(known)
			err := m.check()
			if (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
				t.Errorf("%v, licenses %v", err, m.licenses)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	var out strings.Builder
	err := write(&out, []*module{
		{path: "example.org/a", version: "v1.0.0", licenses: []string{"MIT"}, texts: map[string]string{"LICENSE": "the text"}},
		{path: "example.org/b", version: "v1.1.0", licenses: []string{"MIT"}, texts: map[string]string{"sub/LICENSE": "the text"}},
	})
	got := out.String()
	if err != nil || !strings.Contains(got, "example.org/b v1.1.0: MIT\n") || strings.Count(got, "the text") != 1 ||
		!strings.Contains(got, "example.org/a (LICENSE)\nexample.org/b (sub/LICENSE)\n") {
		t.Errorf("%v:\n%s", err, got)
	}
}
