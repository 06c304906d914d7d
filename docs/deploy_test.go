package docs

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config"
)

// readDocuments reads all documents of a YAML file.
func readDocuments(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	for {
		var doc map[string]any
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, doc)
	}
}

// at returns the value below keys and indexes; nil = there is none.
func at(value any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := value.(map[string]any)
			value = m[step]
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				return nil
			}
			value = list[step]
		}
	}
	return value
}

// The configurations in deploy are valid.
func TestDeployedConfigurations(t *testing.T) {
	texts := make(map[string]string)
	for _, path := range []string{"../deploy/packages/config.yaml", "../deploy/container/config.yaml"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(data)
	}
	for _, doc := range readDocuments(t, "../deploy/kubernetes.yaml") {
		if doc["kind"] == "ConfigMap" {
			texts["ConfigMap"], _ = at(doc, "data", "config.yaml").(string)
		}
	}
	if len(texts) != 3 {
		t.Errorf("%d configurations", len(texts))
	}
	for path, text := range texts {
		if err := config.Validate(path, []byte(text)); err != nil || text == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The manifest for Kubernetes has probes, a grace period, and a container without rights.
func TestKubernetesManifest(t *testing.T) {
	kinds := make(map[string]map[string]any)
	for _, doc := range readDocuments(t, "../deploy/kubernetes.yaml") {
		kind, _ := doc["kind"].(string)
		kinds[kind] = doc
	}
	pod := at(kinds["Deployment"], "spec", "template", "spec")
	gateway := at(pod, "containers", 0)
	for _, test := range []struct {
		got, want any
	}{
		{at(kinds["Service"], "spec", "ports", 0, "port"), 7420},
		{at(gateway, "livenessProbe", "httpGet", "path"), "/healthz"},
		{at(gateway, "readinessProbe", "httpGet", "path"), "/readyz"},
		{at(gateway, "lifecycle", "preStop", "sleep", "seconds"), 5},
		{at(pod, "terminationGracePeriodSeconds"), 30},
		{at(pod, "securityContext", "runAsNonRoot"), true},
		{at(gateway, "securityContext", "readOnlyRootFilesystem"), true},
		{at(gateway, "securityContext", "allowPrivilegeEscalation"), false},
		{at(gateway, "securityContext", "capabilities", "drop", 0), "ALL"},
		{at(pod, "volumes", 0, "configMap", "name"), at(kinds["ConfigMap"], "metadata", "name")},
		{at(pod, "volumes", 1, "secret", "secretName"), "mcp-gateway"},
	} {
		if test.got != test.want {
			t.Errorf("%v, want %v", test.got, test.want)
		}
	}
}

// The service of compose.yaml has a read-only root, no capabilities, and a secret.
func TestComposeFile(t *testing.T) {
	doc := readDocuments(t, "../deploy/compose.yaml")[0]
	gateway := at(doc, "services", "gateway")
	if at(gateway, "read_only") != true || at(gateway, "cap_drop", 0) != "ALL" ||
		at(gateway, "ports", 0) != "127.0.0.1:7420:7420" ||
		at(gateway, "secrets", 0) != "gateway_token" ||
		at(doc, "secrets", "gateway_token", "environment") != "GATEWAY_TOKEN" {
		t.Errorf("%v", gateway)
	}
}

// Both images run without root, and have a health check.
func TestDockerfile(t *testing.T) {
	data, err := os.ReadFile("../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages := strings.Split(string(data), "\nFROM ")[1:]
	if len(stages) != 3 {
		t.Fatalf("%d stages", len(stages))
	}
	for _, stage := range stages[1:] {
		lines := strings.Split(stage, "\n")
		for _, line := range []string{"USER 65532:65532", "VOLUME /state",
			`ENTRYPOINT ["/usr/local/bin/gateway", "serve"]`} {
			if !slices.Contains(lines, line) {
				t.Errorf("the stage %q has no line %s", lines[0], line)
			}
		}
		if !strings.Contains(stage, "HEALTHCHECK ") {
			t.Errorf("the stage %q has no health check", lines[0])
		}
	}
}
