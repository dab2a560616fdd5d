package webdav

import (
	"bufio"
	"encoding/xml"
	"errors"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// maxNames bounds the properties that one request asks for, and maxNamed what their names take where they are written:
// each entry's answer repeats them.
const (
	maxNames = 256
	maxNamed = 16 << 10
)

// A question is what a PROPFIND asks of each entry.
type question struct {
	// names only: which properties there are, without values.
	namesOnly bool
	// all: all dead properties and the live ones that cost nothing; names then holds more of them.
	all   bool
	names []xml.Name
}

// propfind answers entry by entry, so that memory does not grow with the folder.
func (c *call) propfind() error {
	depth := c.r.Header.Get("Depth")
	if depth == "" || isInfinity(depth) {
		return errFiniteDepth
	}
	if depth != "0" && depth != "1" {
		return errDepth
	}
	body, err := c.readBody()
	if err != nil {
		return err
	}
	ask, err := questionOf(body)
	if err != nil {
		return err
	}
	entry, err := c.drive.Stat(c.path)
	if err != nil {
		return err
	}
	if depth == "1" && entry.Folder {
		return c.answerFolder(ask, entry)
	}
	out := c.multistatus()
	return c.finish(errors.Join(c.answerSelf(out, ask, entry), out.end()))
}

func (c *call) answerFolder(ask question, entry drive.Entry) error {
	folder, err := c.drive.OpenFolder(c.path)
	if err != nil {
		return err
	}
	defer folder.Close()
	out := c.multistatus()
	if err := c.answerSelf(out, ask, entry); err != nil {
		return c.finish(err)
	}
	err = folder.Each(c.context(), func(e drive.Entry) error {
		path := e.Name
		if c.path != "" {
			path = c.path + "/" + e.Name
		}
		return c.answerEntry(out, ask, resource{call: c, path: path, entry: e, dead: func() ([]drive.Property, error) {
			return folder.Properties(e.Name)
		}})
	})
	return c.finish(errors.Join(err, out.end()))
}

func (c *call) answerSelf(out *multistatus, ask question, entry drive.Entry) error {
	return c.answerEntry(out, ask, resource{call: c, path: c.path, entry: entry, dead: func() ([]drive.Property, error) {
		return c.drive.Properties(c.path)
	}})
}

func (c *call) answerEntry(out *multistatus, ask question, r resource) error {
	found, missing, err := ask.of(r)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return out.response(c.href(r.path, r.entry.Folder), propstat{http.StatusOK, found}, propstat{http.StatusNotFound, missing})
}

func questionOf(body *element) (ask question, err error) {
	if body == nil {
		return question{all: true}, nil
	}
	if !body.is("propfind") {
		return question{}, errXML
	}
	if body.child("propname") != nil {
		return question{namesOnly: true}, nil
	}
	named := body.child("prop")
	if body.child("allprop") != nil {
		ask.all = true
		named = body.child("include")
	} else if named == nil {
		return question{}, errXML
	}
	if named == nil {
		return ask, nil
	}
	ask.names, err = namesIn(named)
	return ask, err
}

// namesIn lists the properties that are named, each once however often it is.
func namesIn(named *element) (names []xml.Name, err error) {
	room := maxNamed
	for _, property := range named.children() {
		if slices.Contains(names, property.name) {
			continue
		}
		names = append(names, property.name)
		if room -= len(emptyElement(property.name)); room < 0 || len(names) > maxNames {
			return nil, entity.Errorf(entity.InvalidRequest, "more than %d properties, or %d bytes of their names", maxNames, maxNamed)
		}
	}
	return names, nil
}

var errGone = errors.New("webdav: the entry is gone")

// of answers for one entry: the elements that it has, and those that it has not.
func (q question) of(r resource) (found, missing []string, err error) {
	if !q.all && !q.namesOnly && !q.asksDead() {
		found, missing = q.named(r, nil)
		return found, missing, nil
	}
	dead, err := r.dead()
	if code(err) == entity.NotFound {
		return nil, nil, errGone
	}
	if err != nil {
		return nil, nil, err
	}
	if q.namesOnly {
		return namesOf(r, dead), nil, nil
	}
	if q.all {
		for _, live := range liveProperties {
			if value, has := live.value(r); has && !live.asked {
				found = append(found, live.element(value))
			}
		}
		for _, property := range dead {
			found = append(found, deadElement(property))
		}
	}
	more, missing := q.named(r, dead)
	return append(found, more...), missing, nil
}

func (q question) asksDead() bool {
	for _, name := range q.names {
		if _, live := liveProperty(name); !live {
			return true
		}
	}
	return false
}

// named answers the named properties.
func (q question) named(r resource, dead []drive.Property) (found, missing []string) {
	for _, name := range q.names {
		if element, has := r.property(name, dead); has {
			found = append(found, element)
		} else {
			missing = append(missing, emptyElement(name))
		}
	}
	return found, missing
}

// A multistatus streams an answer.
type multistatus struct{ out *bufio.Writer }

func (c *call) multistatus() *multistatus {
	c.w.Header().Set("Content-Type", xmlType)
	c.w.WriteHeader(http.StatusMultiStatus)
	m := &multistatus{bufio.NewWriterSize(c.w, 16<<10)}
	m.out.WriteString(xmlHead + `<D:multistatus xmlns:D="DAV:">`)
	return m
}

type propstat struct {
	status   int
	elements []string
}

// response writes one entry's answer; groups without elements are left out unless all are empty.
func (m *multistatus) response(href string, groups ...propstat) error {
	m.out.WriteString("\n<D:response><D:href>" + escape(href) + "</D:href>")
	written := false
	for i, group := range groups {
		if len(group.elements) == 0 && (written || i < len(groups)-1) {
			continue
		}
		written = true
		m.out.WriteString("<D:propstat><D:prop>")
		for _, element := range group.elements {
			m.out.WriteString(element)
		}
		m.out.WriteString("</D:prop>" + statusElement(group.status) + "</D:propstat>")
	}
	_, err := m.out.WriteString("</D:response>")
	return err
}

// verdict writes what became of one path.
func (m *multistatus) verdict(href string, status int) {
	m.out.WriteString("\n<D:response><D:href>" + escape(href) + "</D:href>" + statusElement(status) + "</D:response>")
}

func (m *multistatus) end() error {
	m.out.WriteString("\n</D:multistatus>\n")
	return m.out.Flush()
}
