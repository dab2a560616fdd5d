package webdav_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wellFormed fails the test unless an answer is well-formed XML with legal names, and returns the href of each of its responses.
func (a *answer) wellFormed() (hrefs []string) {
	a.t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(a.body))
	var open []string
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return hrefs
		}
		if err != nil {
			a.t.Fatalf("%s: %v in %s", a.request, err, a.body)
		}
		switch token := token.(type) {
		case xml.StartElement:
			open = append(open, token.Name.Space+" "+token.Name.Local)
			a.checkNames(token)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if slices.Equal(open, []string{"DAV: multistatus", "DAV: response", "DAV: href"}) {
				hrefs = append(hrefs, string(token))
			}
		}
	}
}

// checkNames fails the test if an element has an illegal name, a prefix that is not declared, or an attribute twice.
func (a *answer) checkNames(e xml.StartElement) {
	a.t.Helper()
	seen := map[xml.Name]bool{}
	names := []xml.Name{e.Name}
	for _, attr := range e.Attr {
		if seen[attr.Name] {
			a.t.Errorf("%s: the attribute %v is there twice", a.request, attr.Name)
		}
		seen[attr.Name] = true
		names = append(names, attr.Name)
	}
	for _, name := range names {
		if strings.ContainsAny(name.Local[:1], "0123456789-.:") || name.Space == "undeclared" {
			a.t.Errorf("%s: the name %v is illegal", a.request, name)
		}
	}
	if e.Name.Space == "http://www.w3.org/XML/1998/namespace" || e.Name.Space == "http://www.w3.org/2000/xmlns/" {
		a.t.Errorf("%s: %v is in a reserved namespace", a.request, e.Name)
	}
}

// setProps stores text as the properties of an entry, as a process can.
func (s *site) setProps(path, text string) {
	s.t.Helper()
	if err := unix.Setxattr(s.files(path), "user.atelier.props", []byte(text), 0); err != nil {
		s.t.Fatal(err)
	}
}

// breakOut closes the response of an entry and adds one of an entry that does not exist.
const breakOut = `</D:prop></D:propstat></D:response><D:response><D:href>/forged</D:href><D:propstat><D:prop>`

// TestStoredPropertiesAreValidated stores properties as a process can, and asks for them in each way.
func TestStoredPropertiesAreValidated(t *testing.T) {
	stored := map[string][]map[string]string{
		"local name breaks out":       {{"l": "x/>" + breakOut + "<x", "v": "1"}},
		"local name has an attribute": {{"l": `x a="1"`}},
		"local name is a number":      {{"l": "1", "s": "urn:x"}},
		"local name has a prefix":     {{"l": "D:getetag"}},
		"local name is empty":         {{"s": "urn:x", "v": "1"}},
		"local name is no text":       {{"l": "\x00\u202e"}},
		"namespace is no text":        {{"s": "urn:\x01", "l": "x"}},
		"namespace is reserved":       {{"s": "http://www.w3.org/2000/xmlns/", "l": "x"}, {"s": "http://www.w3.org/XML/1998/namespace", "l": "x"}},
		"namespace is long":           {{"s": strings.Repeat("n", 2000), "l": "x"}},
		"value breaks out":            {{"s": "urn:x", "l": "x", "v": "</x>" + breakOut + "<x>"}},
		"value is not closed":         {{"s": "urn:x", "l": "x", "v": "<y>"}},
		"value is a comment":          {{"s": "urn:x", "l": "x", "v": "<!--"}},
		"value has a document type":   {{"s": "urn:x", "l": "x", "v": "<!DOCTYPE x>"}},
		"value has a bad reference":   {{"s": "urn:x", "l": "x", "v": "&#1;"}, {"s": "urn:x", "l": "z", "v": "&unknown;"}},
		"value has a bad prefix":      {{"s": "urn:x", "l": "x", "v": "<undeclared:y/>"}},
		"value has bad names":         {{"s": "urn:x", "l": "x", "v": `<y:1 xmlns:y="urn:y"/>`}},
		"value is control":            {{"s": "urn:x", "l": "x", "v": "\x01"}},
		"value is deep":               {{"s": "urn:x", "l": "x", "v": strings.Repeat("<a>", 100) + strings.Repeat("</a>", 100)}},
		"attributes break out":        {{"s": "urn:x", "l": "x", "a": ">" + breakOut + "<"}},
		"attributes repeat":           {{"s": "urn:x", "l": "x", "a": ` xmlns="urn:y"`}, {"s": "urn:x", "l": "z", "a": ` b="1" b="2"`}},
		"attributes have bad names":   {{"s": "urn:x", "l": "x", "a": ` y:1="" xmlns:y="urn:y"`}, {"s": "urn:x", "l": "z", "a": ` undeclared:b="1"`}},
		"live properties":             {{"s": "DAV:", "l": "getcontentlength", "v": "77"}, {"s": "DAV:", "l": "resourcetype", "v": `<collection xmlns="DAV:"/>`}},
	}
	for name, properties := range stored {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			s.do("PUT", "/a", "1").is(201)
			good := map[string]string{"s": "urn:good", "l": "kept", "v": "kept value"}
			text, err := json.Marshal(append(properties, good, good))
			if err != nil {
				t.Fatal(err)
			}
			s.setProps("a", string(text))
			s.checkOnlyGood()
			s.do("PROPPATCH", "/a", propertyUpdate(`<m xmlns="urn:m"/>`)).is(207).wellFormed()
			s.do("COPY", "/a", "", "Destination: "+prefix+"/b").is(201)
			s.checkOnlyGood("/b")
			s.do("PROPPATCH", "/a", propertyUpdate(`<kept xmlns="urn:good">changed</kept>`)).is(207).says("200 OK")
			s.do("PROPFIND", "/a", "", "Depth: 0").is(207).says("changed").wellFormed()
		})
	}
	for _, text := range []string{"null", "[null]", "{}", "[[", `[{"l":1}]`, "\xff", strings.Repeat("[", 3000)} {
		s := serve(t)
		s.do("PUT", "/a", "1").is(201)
		s.setProps("a", text)
		s.do("PROPFIND", "/", "", "Depth: 1").is(207).wellFormed()
		s.do("PROPPATCH", "/a", propertyUpdate(`<m xmlns="urn:m">set</m>`)).is(207).says("200 OK")
		s.do("PROPFIND", "/a", "", "Depth: 0").is(207).says("set").wellFormed()
	}
}

// checkOnlyGood fails the test if PROPFIND requests of any kind return an entry that does not exist, or of /a any other dead property
// than the good one.
func (s *site) checkOnlyGood(more ...string) {
	s.t.Helper()
	want := append([]string{prefix + "/", prefix + "/a"}, more...)
	for i := range more {
		want[i+2] = prefix + more[i]
	}
	for _, body := range []string{
		"", `<propfind xmlns="DAV:"><propname/></propfind>`, `<propfind xmlns="DAV:"><prop><kept xmlns="urn:good"/><x xmlns="urn:x"/></prop></propfind>`,
	} {
		got := s.do("PROPFIND", "/", body, "Depth: 1").is(207)
		hrefs := got.wellFormed()
		slices.Sort(hrefs)
		if !slices.Equal(hrefs, want) {
			s.t.Errorf("%q: the responses are of %q, want %q", body, hrefs, want)
		}
		found := 0
		for group := range strings.SplitSeq(got.body, "<D:propstat>") {
			if strings.Contains(group, " 200 OK") {
				found += strings.Count(group, `<kept xmlns="urn:good"`)
			}
		}
		if found != 1+len(more) || strings.Contains(got.body, ">77<") {
			s.t.Errorf("%q: %s", body, got.body)
		}
		s.do("PROPFIND", "/a", body, "Depth: 0").is(207).wellFormed()
	}
}

// TestRequestsStoreNoIllegalXML sends elements that encoding/xml accepts, and that other parsers refuse or would refuse in the response.
func TestRequestsStoreNoIllegalXML(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	for _, content := range []string{
		`<x:1 xmlns:x="urn:x"/>`, `<x:-a xmlns:x="urn:x"/>`, `<x:· xmlns:x="urn:x"/>`, `<m xmlns="urn:x" xmlns:x="urn:x" x:.a="1"/>`, `<m xmlns="urn:x"><x:1 xmlns:x="urn:x"/></m>`,
		`<m xmlns="urn:x" a="1" a="2"/>`, `<m xmlns="urn:x" xmlns:x="urn:y" xmlns:y="urn:y" x:a="1" y:a="2"/>`, `<m xmlns="urn:x" xmlns:x="urn:y" xmlns:x="urn:z"/>`,
		`<xml:m/>`, `<m xmlns="http://www.w3.org/XML/1998/namespace"/>`, `<x:m xmlns:x="http://www.w3.org/2000/xmlns/"/>`, `<m xmlns="urn:x"><xml:m/></m>`,
	} {
		s.do("PROPPATCH", "/a", propertyUpdate(content)).is(400)
		s.do("PROPFIND", "/a", `<D:propfind xmlns:D="DAV:"><D:prop>`+content+`</D:prop></D:propfind>`, "Depth: 0").is(400)
		s.do("LOCK", "/a", strings.Replace(exclusive, "me", content, 1)).is(400)
	}
	// The legal forms of the same.
	legal := `<x:m1 xmlns:x="urn:x" xmlns:y="urn:y" a="1" x:a="2" y:a="3" xml:lang="de" xml:space="preserve"><é/>]]&gt;&#x9;</x:m1>`
	s.do("PROPPATCH", "/a", propertyUpdate(legal)).is(207).says("200 OK")
	token := s.lock("/a", strings.Replace(exclusive, "me", legal, 1), 200)
	before := s.do("PROPFIND", "/a", `<propfind xmlns="DAV:"><prop><m1 xmlns="urn:x"/></prop></propfind>`, "Depth: 0").is(207).says(`xml:lang="de"`, "<é")
	before.wellFormed()
	// Encodes the stored properties again.
	s.do("PROPPATCH", "/a", propertyUpdate(`<n xmlns="urn:x"/>`), "If: ("+token+")").is(207).says("200 OK")
	after := s.do("PROPFIND", "/a", `<propfind xmlns="DAV:"><prop><m1 xmlns="urn:x"/></prop></propfind>`, "Depth: 0").is(207)
	if after.body != before.body {
		t.Errorf("the property has changed from\n%s\nto\n%s", before.body, after.body)
	}
}

// TestNamesOfProcesses creates names that are no text, or that XML, JSON or a header cannot contain.
func TestNamesOfProcesses(t *testing.T) {
	s := serve(t)
	for _, name := range []string{"\xff", "a\nb", "a\x1bb", "\u0085", "]]>", `"&<>`, "\ufffe", "\u202e", "a\u2028b"} {
		if err := os.WriteFile(s.files(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hrefs := s.do("PROPFIND", "/", "", "Depth: 1").is(207).wellFormed()
	if len(hrefs) != 6 {
		t.Errorf("the responses are of %q, want the folder and 5 files", hrefs)
	}
	for _, href := range hrefs[1:] {
		s.do("GET", strings.TrimPrefix(href, prefix), "").is(200)
	}
}

// TestStoredLocksAreValidated writes lock tables that Acquire cannot have written. A lock with a bad owner holds, without the owner.
func TestStoredLocksAreValidated(t *testing.T) {
	const token = "urn:uuid:00000000-0000-4000-8000-000000000000"
	in := func(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }
	good := map[string]any{"token": token, "path": "a", "creator": "usr_1", "expires": in(time.Minute)}
	with := func(field string, value any) map[string]any {
		changed := map[string]any{field: value}
		for name := range good {
			if name != field {
				changed[name] = good[name]
			}
		}
		return changed
	}
	invalid := map[string]any{
		"null":                   nil,
		"token breaks out":       with("token", "</D:href>"+breakOut),
		"token is empty":         with("token", ""),
		"owner breaks out":       with("owner", "</D:owner>"+breakOut),
		"owner is not closed":    with("owner", "<a>"),
		"owner has a bad prefix": with("owner", "<undeclared:a/>"),
		"owner is long":          with("owner", strings.Repeat("x", 3000)),
		"path is a parent":       with("path", "../a"),
		"path is no text":        with("path", "a\x00"),
		"path is absolute":       with("path", "/a"),
		"creator is empty":       with("creator", ""),
	}
	badOwner := map[string]bool{"owner breaks out": true, "owner is not closed": true, "owner has a bad prefix": true}
	write := func(s *site, table any) {
		t.Helper()
		content, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		s.stop()
		if err := os.WriteFile(filepath.Join(s.dir, workspace, "locks.json"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		s.start()
	}
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	s.do("PUT", "/b", "1").is(201)
	for name, held := range invalid {
		t.Run(name, func(t *testing.T) {
			s.t = t
			write(s, []any{held, with("path", "b")})
			got := s.do("PROPFIND", "/", "", "Depth: 1").is(207)
			if hrefs := got.wellFormed(); len(hrefs) != 3 {
				t.Errorf("the responses are of %q", hrefs)
			}
			status := 204
			if badOwner[name] {
				status = 423
			}
			s.do("PUT", "/a", "2").is(status)
			s.do("PUT", "/b", "2").is(423).wellFormed()
		})
	}
	s.t = t
	write(s, []any{with("expires", in(1000*time.Hour))})
	s.do("PROPFIND", "/a", "", "Depth: 0").is(207).says("<D:timeout>Second-3600<").wellFormed()
	many := make([]any, 600)
	for i := range many {
		many[i] = with("shared", true)
	}
	write(s, many)
	if got := strings.Count(s.do("PROPFIND", "/a", "", "Depth: 0").is(207).body, "<D:activelock>"); got < 50 || got > 100 {
		t.Errorf("the file has %d locks", got)
	}
	write(s, map[string]int{"a": 1})
	s.do("PUT", "/a", "3").is(204)
}
