package main

import (
	"context"
	"io"
	"sync"
	"time"

	"mcpgateway/internal/adminapi"
)

// registryInterval is the time between two looks for gateways that have started meanwhile. All
// other changes are events.
const registryInterval = 2 * time.Second

// clearScreen moves the cursor of a terminal home and erases everything behind it.
const clearScreen = "\033[H\033[2J\033[3J"

// watchStatus prints the status of all gateways each time it changes, until ctx is done. On a
// terminal each status replaces the one before.
func watchStatus(ctx context.Context, c *cli, asJSON bool) error {
	dirs, err := registryDirs(ctx, &c.source)
	if err != nil {
		return err
	}
	w := &statusWatch{cli: c, dirs: dirs, latest: make(map[string]*adminapi.GatewayStatus),
		changed: make(chan struct{}, 1)}
	ctx, end := context.WithCancel(ctx)
	defer w.watching.Wait()
	defer end()
	if err := w.follow(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(registryInterval)
	defer ticker.Stop()
	w.note()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := w.follow(ctx); err != nil {
				return err
			}
		case <-w.changed:
			if err := w.print(asJSON); err != nil {
				return err
			}
		}
	}
}

// A statusWatch follows the events of all gateways.
type statusWatch struct {
	*cli
	dirs     []string // state directories
	watching sync.WaitGroup
	changed  chan struct{} // has an element if something has changed since the last print

	mu     sync.Mutex
	latest map[string]*adminapi.GatewayStatus // by id; nil = not known yet
}

// follow begins to follow the gateways that have started meanwhile.
func (w *statusWatch) follow(ctx context.Context) error {
	all, err := gatewaysIn(w.dirs)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range all {
		if _, known := w.latest[g.ID]; known {
			continue
		}
		w.latest[g.ID] = nil
		w.watching.Go(func() {
			types := []adminapi.EventType{adminapi.StatusEvents}
			_ = g.Client().Events(ctx, types, nil, func(e *adminapi.AdminEvent) error {
				if e.Status != nil {
					w.set(g.ID, e.Status)
				}
				return nil
			})
			w.remove(g.ID)
		})
	}
	return nil
}

func (w *statusWatch) set(id string, s *adminapi.GatewayStatus) {
	w.mu.Lock()
	w.latest[id] = s
	w.mu.Unlock()
	w.note()
}

// remove removes a gateway whose events have ended. It is followed again if it is still there.
func (w *statusWatch) remove(id string) {
	w.mu.Lock()
	delete(w.latest, id)
	w.mu.Unlock()
	w.note()
}

func (w *statusWatch) note() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// print prints the latest status of all gateways.
func (w *statusWatch) print(asJSON bool) error {
	var reports []gatewayReport
	w.mu.Lock()
	for id, s := range w.latest {
		if s != nil {
			reports = append(reports, gatewayReport{ID: id, GatewayStatus: s})
		}
	}
	w.mu.Unlock()
	sortReports(reports)
	if asJSON {
		return printReportsJSON(w.cli, reports, "")
	}
	if isTerminal(w.out) {
		if _, err := io.WriteString(w.out, clearScreen); err != nil {
			return err
		}
	} else {
		at := "\n" + time.Now().Format(time.TimeOnly) + "\n"
		if _, err := io.WriteString(w.out, at); err != nil {
			return err
		}
	}
	if len(reports) == 0 {
		_, err := io.WriteString(w.out, "no gateway is running\n")
		return err
	}
	return printReports(w.out, reports, time.Now())
}
