package webdav

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
)

const root = "/v1/ws/acme/drive"

// FuzzSplitPath verifies that every accepted URL path gives a valid path of the drive, and that the href of that path
// gives the same path again.
func FuzzSplitPath(f *testing.F) {
	for _, seed := range []string{
		"", "/", "/a", "/a/b/", "//", "/..", "/%2e%2e/x", "/%2F", "/a%2fb", "/%", "/%zz", "/%00", "/%ff", "/ü", "/%C3%BC", "x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		path, trailingSlash, err := splitPath(root+rest, root)
		if err != nil {
			return
		}
		if path != "" {
			if err := entity.CheckPath(path); err != nil {
				t.Fatalf("%q became %q: %v", rest, path, err)
			}
		}
		back, backSlash, err := splitPath((&call{prefix: root}).href(path, trailingSlash), root)
		if err != nil || back != path || backSlash != trailingSlash {
			t.Fatalf("%q became %q and then %q: %v", rest, path, back, err)
		}
	})
}

// FuzzIf verifies that parseIf refuses a header or returns lists with conditions.
func FuzzIf(f *testing.F) {
	for _, seed := range []string{
		"", `(<urn:x>)`, `(Not <DAV:no-lock> ["e"])`, `<http://h/v1/ws/acme/drive/a> (["e"]) (<t>)`, `(`, `()`, `(<>)`, `<a><b>(<c>)`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		request := httptest.NewRequest("PUT", root+"/a", nil)
		c := &call{r: request, prefix: root, path: "a"}
		parsed, err := c.parseIf([]string{header})
		if err != nil {
			return
		}
		for _, list := range parsed.lists {
			if len(list.conditions) == 0 {
				t.Fatalf("%q has an empty list", header)
			}
		}
	})
}

// FuzzBody verifies that encoding a parsed property and parsing it again gives the same property.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`<propertyupdate xmlns="DAV:"><set><prop><a xmlns="urn:x" y="1">t<b/></a></prop></set></propertyupdate>`,
		`<D:propertyupdate xmlns:D="DAV:"><D:remove><D:prop><x/></D:prop></D:remove></D:propertyupdate>`,
		`<!DOCTYPE x [<!ENTITY e "e">]><x>&e;</x>`, `<a xmlns:b=""/>`, `<b:a/>`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		request := httptest.NewRequest("PROPPATCH", root+"/a", strings.NewReader(body))
		edits, err := parseRequest(request)
		if err != nil {
			return
		}
		for _, edit := range edits {
			if edit.value == nil {
				continue
			}
			again := `<propertyupdate xmlns="DAV:"><set><prop>` + deadElement(*edit.value) + `</prop></set></propertyupdate>`
			back, err := parseRequest(httptest.NewRequest("PROPPATCH", root+"/a", strings.NewReader(again)))
			if err != nil || len(back) != 1 || *back[0].value != *edit.value {
				t.Fatalf("%q was written as %q and read as %v: %v", body, again, back, err)
			}
		}
	})
}

func parseRequest(request *http.Request) ([]edit, error) {
	c := &call{w: httptest.NewRecorder(), r: request}
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	return parseEdits(body)
}
