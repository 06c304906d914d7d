package main

import (
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/activity"
	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/config"
	"mcpgateway/internal/text"
)

// adminCatalog shows the merged catalog.
type adminCatalog struct{ *adminService }

// maxDescription bounds a description in the catalog of the admin API, in bytes.
const maxDescription = 1 << 10

// Catalog implements adminserver.CatalogSource.
func (a adminCatalog) Catalog() adminapi.CatalogList {
	list := adminapi.CatalogList{Entries: []adminapi.CatalogEntry{},
		Problems: []adminapi.CatalogProblem{}}
	view := a.backends.View()
	for k := range catalog.Kind(catalog.NumKinds) {
		for _, e := range view.Entries(k) {
			list.Entries = append(list.Entries, adminapi.CatalogEntry{
				Kind: k.ResultMember(), Name: a.mask.String(e.Exposed), Backend: e.Backend,
				OwnName: a.mask.String(e.Item.Original), Why: whyName(&e),
				Description: text.Truncate(a.mask.String(e.Item.Description()), maxDescription),
			})
		}
	}
	for _, b := range a.backends.Status() {
		add := func(what, item, why string) {
			list.Problems = append(list.Problems, adminapi.CatalogProblem{Backend: b.Name,
				What: what, Item: a.mask.String(item), Why: a.mask.String(why)})
		}
		for _, i := range b.Omitted {
			add("left out", i.Item, i.Problem)
		}
		for _, i := range b.Repaired {
			add("repaired", i.Item, i.Problem)
		}
		for _, i := range b.Suspicious {
			add("suspicious", i.Item, i.Problem)
		}
		for _, name := range b.Pins.New {
			add("not approved", name, "the tool is new; tools.pin is "+string(b.Pins.Mode))
		}
		for _, name := range b.Pins.Changed {
			add("not approved", name, "the tool has changed; tools.pin is "+string(b.Pins.Mode))
		}
		for _, glob := range b.Unmatched {
			add("filter", glob, "it matches no entry")
		}
	}
	return list
}

// whyName says why an entry has not the name that it would have otherwise; "" = it has it.
func whyName(e *catalog.Entry) string {
	why := ""
	switch {
	case e.PrefixConflict:
		why = "its name begins with the prefix of " + e.ConflictBackend
	case e.ConflictBackend != "":
		why = e.ConflictBackend + " has the name"
	}
	if e.Exposed == "" {
		if why == "" {
			why = "no valid name is left for it"
		}
		return "not listed: " + why
	}
	return why
}

// Series implements adminserver.CatalogSource.
func (a adminCatalog) Series() adminapi.SeriesList {
	total, backends := a.activity.Series()
	list := adminapi.SeriesList{Total: seriesPoints(total),
		Backends: make(map[string][]adminapi.SeriesPoint, len(backends))}
	for name, points := range backends {
		list.Backends[name] = seriesPoints(points)
	}
	return list
}

func seriesPoints(points []activity.Point) []adminapi.SeriesPoint {
	all := make([]adminapi.SeriesPoint, len(points))
	for i, p := range points {
		all[i] = adminapi.SeriesPoint{Start: p.Start.Truncate(time.Minute), Calls: p.Calls,
			Errors: p.Errors, P50: inMilliseconds(p.P50), P99: inMilliseconds(p.P99)}
	}
	return all
}

// Configuration implements adminserver.CatalogSource.
func (a adminCatalog) Configuration() adminapi.ConfigurationList {
	file := a.reloader.File()
	list := adminapi.ConfigurationList{
		State:       adminStatus(a).configurationState(),
		Differences: changeRows(file.Differences(), true), Settings: []adminapi.ConfigSetting{},
	}
	add := func(backend string, values []config.KeyValue) {
		for _, v := range values {
			list.Settings = append(list.Settings, adminapi.ConfigSetting{Backend: backend,
				Key: v.Key, Value: a.mask.String(v.Value)})
		}
	}
	add("", config.Values(file.InForce))
	for _, b := range file.InForce.Backends {
		add(b.Name, b.Values())
	}
	return list
}
