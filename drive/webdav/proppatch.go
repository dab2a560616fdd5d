package webdav

import (
	"cmp"
	"encoding/xml"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// maxEditBytes limits the values that one PROPPATCH request sets, in bytes. A resource cannot store more.
const maxEditBytes = 64 << 10

// An edit sets a property, or removes it if value is nil.
type edit struct {
	name  xml.Name
	value *drive.Property
	// isTooLarge is set if the value exceeds maxEditBytes.
	isTooLarge bool
	// modified is the modification time that an edit of DAV:lastmodified sets; zero: the edit sets none.
	modified time.Time
}

// proppatch answers PROPPATCH. It makes all edits, in their order, or none.
func (c *call) proppatch() error {
	body, err := c.readBody()
	if err != nil {
		return err
	}
	edits, err := parseEdits(body)
	if err != nil {
		return err
	}
	change, err := c.change()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(edits, func(e edit) bool { return e.refusal() != 0 }) {
		if _, err := c.drive.Stat(c.path); err != nil {
			return err
		}
		return c.refuseEdits(edits, edit.refusal)
	}
	for _, e := range edits {
		if !e.modified.IsZero() {
			change.Modified = e.modified
		}
	}
	err = c.drive.Patch(c.context(), c.path, change, func(props []drive.Property) ([]drive.Property, error) {
		if slices.ContainsFunc(edits, func(e edit) bool { return e.isTooLarge }) {
			return nil, entity.Errorf(drive.Full, "a property is too large")
		}
		return applyEdits(validProperties(props), edits), nil
	})
	switch {
	case entity.HasCode(err, drive.Full):
		return c.writeEdits(propstat{http.StatusInsufficientStorage, elementsOf(edits)})
	case entity.HasCode(err, drive.TimeOutOfRange):
		return c.refuseEdits(edits, func(e edit) int {
			if e.modified.IsZero() {
				return 0
			}
			return http.StatusConflict
		})
	case err != nil:
		return err
	}
	return c.writeEdits(propstat{http.StatusOK, elementsOf(edits)})
}

// parseEdits parses a propertyupdate element.
func parseEdits(body *element) (edits []edit, err error) {
	if body == nil || !body.is("propertyupdate") {
		return nil, errXML
	}
	remaining := maxEditBytes
	for _, action := range body.children() {
		set := action.is("set")
		props := action.child("prop")
		if !set && !action.is("remove") {
			continue
		}
		if props == nil {
			return nil, errXML
		}
		for _, property := range props.children() {
			next := edit{name: property.name}
			if set {
				next.value, next.isTooLarge = newValue(property, &remaining)
			}
			if next.name == lastModified && next.value != nil {
				next.modified, _ = parseSeconds(strings.TrimSpace(next.value.Inner))
			}
			edits = append(edits, next)
		}
	}
	if len(edits) == 0 || len(edits) > maxNames {
		return nil, entity.Errorf(entity.InvalidRequest, "a PROPPATCH request must set or remove 1 to %d properties", maxNames)
	}
	return edits, nil
}

// newValue returns the property that an element sets, with the language in scope (RFC 4918, section 4.3). It subtracts
// the size of the value from remaining, and returns tooLarge if that is not enough.
func newValue(property *element, remaining *int) (value *drive.Property, tooLarge bool) {
	attrs := slices.DeleteFunc(slices.Clone(property.attrs), func(a xml.Attr) bool {
		return a.Name.Space == xmlNS && a.Name.Local == "lang"
	})
	if property.lang != "" {
		attrs = append(attrs, xml.Attr{Name: xml.Name{Space: xmlNS, Local: "lang"}, Value: property.lang})
	}
	written, err := encodeAttrs(attrs, *remaining)
	if err != nil {
		return nil, true
	}
	inner, err := property.encodeContent(*remaining - len(written))
	if err != nil {
		return nil, true
	}
	*remaining -= len(written) + len(inner)
	return &drive.Property{Space: property.name.Space, Local: property.name.Local, Attrs: written, Inner: inner}, false
}

// lastModified is the live property that can be set.
var lastModified = xml.Name{Space: davNS, Local: "lastmodified"}

// refusal returns the status of an edit that is refused whatever the state of the drive is; 0: the edit may be made. Only one live property
// can be set, and none removed.
func (e edit) refusal() int {
	_, live := liveProperty(e.name)
	switch {
	case !live:
		return 0
	case e.name != lastModified || e.value == nil && !e.isTooLarge:
		return http.StatusForbidden
	case e.modified.IsZero():
		return http.StatusConflict // RFC 4918, section 9.2.1: the value does not suit the property
	}
	return 0
}

// applyEdits returns the dead properties after the edits. It reuses props.
func applyEdits(props []drive.Property, edits []edit) []drive.Property {
	for _, e := range edits {
		if e.name == lastModified {
			continue
		}
		at := slices.IndexFunc(props, func(p drive.Property) bool { return p.Space == e.name.Space && p.Local == e.name.Local })
		switch {
		case e.value == nil && at >= 0:
			props = slices.Delete(props, at, at+1)
		case e.value != nil && at >= 0:
			props[at] = *e.value
		case e.value != nil:
			props = append(props, *e.value)
		}
	}
	return props
}

// refuseEdits answers with the status of each refused edit, and 424 (Failed Dependency) for the others.
func (c *call) refuseEdits(edits []edit, refusal func(edit) int) error {
	refused := map[int][]edit{}
	for _, e := range edits {
		status := cmp.Or(refusal(e), http.StatusFailedDependency)
		refused[status] = append(refused[status], e)
	}
	var groups []propstat
	for _, status := range slices.Sorted(maps.Keys(refused)) {
		groups = append(groups, propstat{status, elementsOf(refused[status])})
	}
	return c.writeEdits(groups...)
}

// writeEdits answers with the status of each edit.
func (c *call) writeEdits(groups ...propstat) error {
	entry, err := c.drive.Stat(c.path)
	if err != nil {
		return err
	}
	out := c.multistatus()
	if err := out.response(c.href(c.path, entry.Folder), groups...); err != nil {
		return c.endStream(err)
	}
	return c.endStream(out.end())
}

func elementsOf(edits []edit) []string {
	var elements []string
	for _, e := range edits {
		elements = append(elements, emptyElement(e.name))
	}
	return elements
}
