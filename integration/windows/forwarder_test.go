//go:build wine

package windows

import (
	"bytes"
	"encoding/binary"
)

// forwarder returns a DLL for Windows on amd64 that exports one function of another DLL (target, as
// DLL.FUNCTION). It contains no code.
func forwarder(dll, function, target string) []byte {
	const headers, section, align = 0x200, 0x1000, 0x1000
	var data bytes.Buffer
	put := func(to *bytes.Buffer, values ...any) {
		for _, v := range values {
			_ = binary.Write(to, binary.LittleEndian, v) // to memory
		}
	}
	// The export directory has 40 bytes. Three tables of one entry each follow, and the strings.
	const addresses, names, ordinals, texts = section + 40, section + 44, section + 48, section + 52
	dllAt := uint32(texts)
	functionAt := dllAt + uint32(len(dll)) + 1
	targetAt := functionAt + uint32(len(function)) + 1
	put(&data, uint32(0), uint32(0), uint32(0), dllAt, uint32(1), uint32(1), uint32(1),
		uint32(addresses), uint32(names), uint32(ordinals))
	// An address inside the directory is a string.
	put(&data, targetAt, functionAt, uint16(0), uint16(0))
	data.WriteString(dll + "\x00" + function + "\x00" + target + "\x00")
	size := uint32(data.Len())
	data.Write(make([]byte, headers-data.Len()%headers))

	var file bytes.Buffer
	dos := make([]byte, 64)
	copy(dos, "MZ")
	dos[60] = 64 // where PE begins
	file.Write(dos)
	file.WriteString("PE\x00\x00")
	put(&file, uint16(0x8664), uint16(1), uint32(0), uint32(0), uint32(0), uint16(240),
		uint16(0x2022))
	put(&file, uint16(0x20b), uint16(0), uint32(0), uint32(data.Len()), uint32(0), uint32(0),
		uint32(section),
		uint64(0x180000000), uint32(align), uint32(headers), uint16(6), uint16(0), uint16(0),
		uint16(0), uint16(6), uint16(0),
		uint32(0), uint32(section+align), uint32(headers), uint32(0), uint16(2), uint16(0x100),
		uint64(1<<20), uint64(1<<12), uint64(1<<20), uint64(1<<12), uint32(0), uint32(16))
	put(&file, uint32(section), size) // the export directory is the first of 16
	file.Write(make([]byte, 15*8))
	file.WriteString(".edata\x00\x00")
	put(&file, size, uint32(section), uint32(data.Len()), uint32(headers), uint32(0), uint32(0),
		uint16(0), uint16(0), uint32(0x40000040))
	file.Write(make([]byte, headers-file.Len()))
	file.Write(data.Bytes())
	return file.Bytes()
}
