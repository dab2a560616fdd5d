package pages

import (
	"html/template"
	"time"
)

var functions = template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) }, // our own file, not a visitor's text
	"day":   func(at int64) string { return time.UnixMilli(at).UTC().Format("2 January 2006") },
	"time":  func(at int64) string { return time.UnixMilli(at).UTC().Format("2 January 2006, 15:04 UTC") },
	"iso":   func(at int64) string { return time.UnixMilli(at).UTC().Format(time.RFC3339) },
}
