package webdav

import (
	"encoding/xml"
	"net/http"
	"path"
	"slices"
)

// above is one request on a folder above the drives: a folder that no drive has, and that contains only folders.
type above struct {
	*call
	// list returns the names of the folders in the folder.
	list func() ([]string, error)
}

// ServeAbove answers OPTIONS and PROPFIND on a folder above the drives. Windows sends both to each prefix of a drive's address before it
// uses the address. The caller has authorized the request, and has set the header Allow of the response to OPTIONS, which needs no
// authorization. path is the URL path of the folder, without a slash at its end; the path of the root is empty. list returns the names of
// the folders in it. ServeAbove calls list only if the response has the names, and returns the error of list, which the caller of
// ServeAbove answers. ServeAbove answers all other errors itself and returns nil.
func (h *Handler) ServeAbove(w http.ResponseWriter, r *http.Request, path string, list func() ([]string, error)) error {
	a := &above{call: &call{Handler: h, w: w, r: r, prefix: path, release: func() {}}, list: list}
	if r.Method == http.MethodOptions {
		writeOptions(w)
		return nil
	}
	return a.answer(func(*call) error { return a.propfind() })
}

// propfind answers PROPFIND on a folder above the drives. Unlike call.propfind it opens no drive.
func (a *above) propfind() error {
	depth := a.r.Header.Get("Depth")
	if depth != "" && !isDepth(depth) {
		return errDepth
	}
	body, err := a.readBody()
	if err != nil {
		return err
	}
	selected, err := parsePropfind(body)
	if err != nil {
		return err
	}
	if depth == "" || isInfinity(depth) {
		return errFiniteDepth
	}
	var names []string
	if depth == "1" {
		if err := a.ask(func() (err error) { names, err = a.list(); return err }); err != nil {
			return err
		}
	}
	out := a.multistatus()
	err = out.folder(selected, a.href("", true), path.Base("/"+a.prefix))
	for _, name := range names {
		if err != nil {
			break
		}
		err = out.folder(selected, a.href(name, true), name)
	}
	if err != nil {
		return a.endStream(err)
	}
	return a.endStream(out.end())
}

// folder writes the response element for a folder above the drives. Such a folder has the properties resourcetype and displayname.
func (m *multistatus) folder(selected selection, href, name string) error {
	found, missing := selected.evaluateAbove(name)
	return m.response(href, propstat{http.StatusOK, found}, propstat{http.StatusNotFound, missing})
}

// evaluateAbove is evaluate for a folder above the drives.
func (s selection) evaluateAbove(name string) (found, missing []string) {
	for _, property := range []struct{ local, value string }{{"resourcetype", "<D:collection/>"}, {"displayname", escape(name)}} {
		switch {
		case s.namesOnly:
			found = append(found, live{local: property.local}.element(""))
		case s.all || s.selects(property.local):
			found = append(found, live{local: property.local}.element(property.value))
		}
	}
	for _, name := range s.names {
		if name.Space != davNS || name.Local != "resourcetype" && name.Local != "displayname" {
			missing = append(missing, emptyElement(name))
		}
	}
	return found, missing
}

// selects reports whether the selection names a property in the namespace DAV:.
func (s selection) selects(local string) bool {
	return slices.Contains(s.names, xml.Name{Space: davNS, Local: local})
}
