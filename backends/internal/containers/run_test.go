package containers

import (
	"strings"
	"testing"
)

func TestReadRun_F_PROC_1(t *testing.T) {
	// engine | options of the user that readRun reads; "" = no container
	for line, want := range map[string]string{
		"docker run -i --rm image":                                             "docker | rm",
		"docker run --rm=false -i image --rm":                                  "docker |",
		"/usr/bin/docker -H tcp://h:1 --tls run -i image":                      "/usr/bin/docker -H tcp://h:1 --tls |",
		"docker --context=x container run -i --rm image":                       "docker --context=x | rm",
		"podman --remote --root /r run -i --rm --cidfile /c image":             "podman --remote --root /r | rm cidfile=/c",
		"podman run -i --cidfile=/c image":                                     "podman | cidfile=/c",
		"podman run -it -e A=--rm -v /a:/b --env --rm image --rm --cidfile /c": "podman |",
		"podman run -eA -itv /a:/b --network none image --cidfile /c":          "podman |",
		"podman run -ie --rm image":                                            "podman |",
		"nerdctl -n k8s run -i --rm image":                                     "nerdctl -n k8s | rm",
		`C:\bin\Docker.EXE run -i image`:                                       `C:\bin\Docker.EXE |`,
		"sudo -n -u me docker run -i --rm image":                               "sudo -n -u me docker | rm",
		"sudo npx server":                                                      "",
		"sudo":                                                                 "",
		"docker":                                                               "",
		"docker -H":                                                            "",
		"docker container":                                                     "",
		"docker run":                                                           "docker |",
		"docker exec -i c server run":                                          "",
		"docker mcp gateway run":                                               "",
		"docker compose run s":                                                 "",
		"npx docker run":                                                       "",
	} {
		words := strings.Fields(line)
		r, ok := readRun(words[0], words[1:])
		got := ""
		if ok {
			got = strings.Join(r.engine, " ") + " |"
			if r.remove {
				got += " rm"
			}
			if r.cidfile != "" {
				got += " cidfile=" + r.cidfile
			}
			with := strings.Join(append(words[:1:1], r.withOption(words[1:], "--cidfile", "F")...),
				" ")
			if strings.Replace(with, " --cidfile F", "", 1) != line ||
				!strings.Contains(with, "run --cidfile F") {
				t.Errorf("%s: with a file it is %s", line, with)
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func TestContainerWarning_F_PROC_1(t *testing.T) {
	for line, want := range map[string]bool{
		"docker run -i --rm image":                 false,
		"docker compose run -T s":                  true,
		"docker compose -f x run s":                true,
		"docker-compose run s":                     true,
		"sudo docker compose run s":                true,
		"sh -c exec_docker run":                    false,
		"sh -c exec docker run -i image":           true,
		"env DOCKER_HOST=x podman run -i image":    true,
		"wsl docker run -i image":                  true,
		"docker exec -i c server":                  false,
		"docker mcp gateway run":                   false,
		"npx -y server run":                        false,
		"node docker run":                          false,
		"flatpak-spawn --host podman run -i image": true,
	} {
		words := strings.Fields(line)
		if got := runsHiddenContainer(words[0], words[1:]); got != want {
			t.Errorf("%s: got %v, want %v", line, got, want)
		}
	}
}
