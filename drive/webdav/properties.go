package webdav

import (
	"encoding/xml"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/atelier-run/atelier/drive"
)

// A resource is an entry of the drive. A PROPFIND request returns its properties.
type resource struct {
	call  *call
	path  string
	entry drive.Entry
	// stored loads the dead properties as they are stored.
	stored func() ([]drive.Property, error)
}

// dead returns the dead properties.
func (r resource) dead() ([]drive.Property, error) {
	stored, err := r.stored()
	return validProperties(stored), err
}

// A live property is computed by the server (RFC 4918, section 4.1). Its value is XML.
type live struct {
	local string
	// value returns the value and whether the resource has the property.
	value func(resource) (value string, has bool)
	// byNameOnly is set if allprop does not include the property (RFC 4331, section 3).
	byNameOnly bool
}

// liveProperties are in the namespace DAV:. A folder has no content, so it has no length, type or entity tag.
var liveProperties = []live{
	{local: "resourcetype", value: func(r resource) (string, bool) {
		if r.entry.Folder {
			return "<D:collection/>", true
		}
		return "", true
	}},
	{local: "displayname", value: func(r resource) (string, bool) {
		if r.path == "" {
			return escape(path.Base(r.call.prefix)), true
		}
		return escape(r.entry.Name), true
	}},
	{local: "getlastmodified", value: func(r resource) (string, bool) {
		return r.entry.Modified.UTC().Format(http.TimeFormat), true
	}},
	{local: lastModified.Local, byNameOnly: true, value: func(r resource) (string, bool) {
		return strconv.FormatInt(r.entry.Modified.Unix(), 10), true
	}},
	{local: "getcontentlength", value: func(r resource) (string, bool) {
		return strconv.FormatInt(r.entry.Size, 10), !r.entry.Folder
	}},
	{local: "getcontenttype", value: func(r resource) (string, bool) {
		return escape(contentType(r.entry.Name)), !r.entry.Folder
	}},
	{local: "getetag", value: func(r resource) (string, bool) {
		return escape(r.entry.ETag()), !r.entry.Folder
	}},
	{local: "supportedlock", value: func(resource) (string, bool) {
		return lockEntry("exclusive") + lockEntry("shared"), true
	}},
	{local: "lockdiscovery", value: func(r resource) (string, bool) {
		var b strings.Builder
		for _, held := range r.call.locks.Covering(r.path) {
			b.WriteString(r.call.activeLockElement(held))
		}
		return b.String(), true
	}},
	{local: "quota-available-bytes", byNameOnly: true, value: func(r resource) (string, bool) {
		_, available, err := r.call.drive.Space(r.call.context())
		return strconv.FormatUint(available, 10), r.entry.Folder && err == nil
	}},
	{local: "quota-used-bytes", byNameOnly: true, value: func(r resource) (string, bool) {
		used, _, err := r.call.drive.Space(r.call.context())
		return strconv.FormatUint(used, 10), r.entry.Folder && err == nil
	}},
}

func lockEntry(scope string) string {
	return "<D:lockentry><D:lockscope><D:" + scope + "/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>"
}

// liveProperty returns the live property with a name, if there is one.
func liveProperty(name xml.Name) (live, bool) {
	if name.Space != davNS {
		return live{}, false
	}
	i := slices.IndexFunc(liveProperties, func(l live) bool { return l.local == name.Local })
	if i < 0 {
		return live{}, false
	}
	return liveProperties[i], true
}

func (l live) element(value string) string {
	if value == "" {
		return "<D:" + l.local + "/>"
	}
	return "<D:" + l.local + ">" + value + "</D:" + l.local + ">"
}

// property returns the element of a property, and whether the resource has it.
func (r resource) property(name xml.Name, dead []drive.Property) (element string, has bool) {
	if live, is := liveProperty(name); is {
		value, has := live.value(r)
		return live.element(value), has
	}
	for _, property := range dead {
		if property.Space == name.Space && property.Local == name.Local {
			return deadElement(property), true
		}
	}
	return "", false
}

// propertyNames returns an empty element for each property of the resource.
func propertyNames(r resource, dead []drive.Property) []string {
	var names []string
	for _, live := range liveProperties {
		if _, has := live.value(r); has {
			names = append(names, live.element(""))
		}
	}
	for _, property := range dead {
		names = append(names, emptyElement(xml.Name{Space: property.Space, Local: property.Local}))
	}
	return names
}

func deadElement(p drive.Property) string {
	return "<" + p.Local + ` xmlns="` + escapeAttribute(p.Space) + `"` + p.Attrs + ">" + p.Inner + "</" + p.Local + ">"
}

func emptyElement(name xml.Name) string {
	return "<" + name.Local + ` xmlns="` + escapeAttribute(name.Space) + `"/>`
}

func statusElement(status int) string {
	return "<D:status>HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "</D:status>"
}
