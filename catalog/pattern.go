package catalog

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// patternFault returns what is wrong with a regular expression of ECMAScript 2024 with the flag u,
// which JSON Schema compilers use; "" if nothing. Package regexp knows another syntax, without
// lookahead.
func patternFault(text string) string {
	p := patternParser{text: text}
	if p.names, p.groups = groupsOf(text); p.names == nil {
		return "a name of two groups"
	}
	if p.groups > maxGroups {
		return "too many groups"
	}
	p.pattern()
	return p.fault
}

// A patternParser walks over a pattern once. The first fault ends that.
type patternParser struct {
	text   string
	at     int
	groups int             // that capture, in the whole pattern
	names  map[string]bool // of groups
	fault  string
}

const noChar = -1

// maxGroups is how many groups that capture V8 accepts in a pattern, with a margin.
const maxGroups = 30_000

// peek returns the next character, noChar behind the last one.
func (p *patternParser) peek() rune {
	if p.at >= len(p.text) || p.fault != "" {
		return noChar
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return r
}

func (p *patternParser) next() rune {
	r := p.peek()
	if r != noChar {
		_, n := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += n
	}
	return r
}

// take steps over a text, if it stands here.
func (p *patternParser) take(text string) bool {
	if p.fault != "" || !strings.HasPrefix(p.text[p.at:], text) {
		return false
	}
	p.at += len(text)
	return true
}

func (p *patternParser) fail(fault string) {
	if p.fault == "" {
		p.fault = fault
	}
}

// groupsOf returns the names of the groups of a pattern, and how many groups capture. names is nil if
// two have the same one.
func groupsOf(text string) (names map[string]bool, groups int) {
	names = make(map[string]bool)
	inClass := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '[':
			inClass = true
		case c == ']':
			inClass = false
		case c != '(' || inClass:
		case !strings.HasPrefix(text[i:], "(?"):
			groups++
		case strings.HasPrefix(text[i:], "(?<=") || strings.HasPrefix(text[i:], "(?<!"):
		case strings.HasPrefix(text[i:], "(?<"):
			groups++
			n := strings.IndexFunc(text[i+3:], func(r rune) bool { return !isNamePart(r) })
			if n <= 0 || text[i+3+n] != '>' {
				continue // which is found to be wrong later
			}
			name := text[i+3 : i+3+n]
			if names[name] {
				return nil, 0
			}
			names[name] = true
		}
	}
	return names, groups
}

func (p *patternParser) pattern() {
	var looks []bool // of the groups that are open: whether they only look ahead or behind
	repeats := false // a quantifier may follow
	for p.fault == "" && p.peek() != noChar {
		switch c := p.next(); c {
		case '|', '^', '$':
			repeats = false
		case '(':
			looks = append(looks, p.open())
			repeats = false
		case ')':
			if len(looks) == 0 {
				p.fail("unmatched )")
				return
			}
			repeats = !looks[len(looks)-1]
			looks = looks[:len(looks)-1]
		case '*', '+', '?', '{':
			if !repeats {
				p.fail("nothing to repeat")
			}
			if c == '{' {
				p.times()
			}
			p.take("?")
			repeats = false
		case '\\':
			if p.take("b") || p.take("B") {
				repeats = false
				continue
			}
			p.escape(false)
			repeats = true
		case '[':
			p.class()
			repeats = true
		case ']', '}':
			p.fail("a bracket without its other")
		default:
			repeats = true
		}
	}
	if len(looks) > 0 {
		p.fail("unterminated group")
	}
}

// open walks over what stands behind the parenthesis that opens a group.
func (p *patternParser) open() (looks bool) {
	switch {
	case !p.take("?") || p.take(":"):
		return false
	case p.take("=") || p.take("!") || p.take("<=") || p.take("<!"):
		return true
	case p.take("<"):
		p.name()
	default:
		p.fail("invalid group")
	}
	return false
}

// name walks over the name of a group, and what ends it.
func (p *patternParser) name() string {
	name, _, closed := strings.Cut(p.text[p.at:], ">")
	if !closed || name == "" {
		p.fail("invalid group name")
		return ""
	}
	first, _ := utf8.DecodeRuneInString(name)
	if !isNameStart(first) || strings.ContainsFunc(name, func(r rune) bool { return !isNamePart(r) }) {
		p.fail("invalid group name")
	}
	p.at += len(name) + 1
	return name
}

func isNameStart(r rune) bool {
	return r == '_' || r == '$' || unicode.In(r, unicode.L, unicode.Nl) && !unicode.Is(unicode.Pattern_Syntax, r)
}

func isNamePart(r rune) bool {
	return isNameStart(r) || r == '\u200c' || r == '\u200d' ||
		unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc)
}

// times walks over what stands behind the brace of a quantifier.
func (p *patternParser) times() {
	least, ok := p.digits()
	most := least
	if p.take(",") {
		if most, _ = p.digits(); most == "" {
			most = least
		}
	}
	switch {
	case !ok || !p.take("}"):
		p.fail("incomplete quantifier")
	case len(most) < len(least) || len(most) == len(least) && most < least:
		p.fail("numbers out of order in a quantifier")
	}
}

// digits returns a number without zeros at its start.
func (p *patternParser) digits() (number string, ok bool) {
	from := p.at
	for c := p.peek(); '0' <= c && c <= '9'; c = p.peek() {
		p.next()
	}
	return strings.TrimLeft(p.text[from:p.at], "0"), p.at > from
}

// class walks over what stands behind the bracket that opens a class.
func (p *patternParser) class() {
	p.take("^")
	for p.fault == "" {
		if p.take("]") {
			return
		}
		first := p.classAtom()
		if !strings.HasPrefix(p.text[p.at:], "-") || strings.HasPrefix(p.text[p.at:], "-]") {
			continue
		}
		p.next()
		switch last := p.classAtom(); {
		case first == aClass || last == aClass:
			p.fail("a class of characters at the end of a range")
		case first > last:
			p.fail("range out of order")
		}
	}
}

// aClass stands for a class of characters where one character is expected.
const aClass = -2

func (p *patternParser) classAtom() rune {
	switch c := p.next(); c {
	case noChar:
		p.fail("unterminated class")
		return noChar
	case '\\':
		return p.escape(true)
	default:
		return c
	}
}

// escape walks over what stands behind a backslash. It returns the character for which that stands.
func (p *patternParser) escape(inClass bool) rune {
	switch c := p.next(); c {
	case 'd', 'D', 's', 'S', 'w', 'W':
		return aClass
	case 'p', 'P':
		p.property()
		return aClass
	case 'f', 'n', 'r', 't', 'v':
		return map[rune]rune{'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}[c]
	case 'c':
		letter := p.next()
		if !('a' <= letter && letter <= 'z' || 'A' <= letter && letter <= 'Z') {
			p.fail("invalid \\c")
		}
		return letter % 32
	case 'x':
		return p.hex(2)
	case 'u':
		return p.unit()
	case '0':
		if next := p.peek(); '0' <= next && next <= '9' {
			p.fail("invalid decimal escape")
		}
		return 0
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		p.at--
		if number, _ := p.digits(); inClass || len(number) > 6 || atoi(number) > p.groups {
			p.fail("a number of no group")
		}
		return aClass
	case 'k':
		if inClass || !p.take("<") {
			p.fail("invalid named reference")
		} else if name := p.name(); p.fault == "" && !p.names[name] {
			p.fail("a name of no group")
		}
		return aClass
	case 'b', '-':
		if !inClass {
			break
		}
		if c == 'b' {
			return '\b'
		}
		return c
	case '^', '$', '\\', '.', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|', '/':
		return c
	}
	p.fail("invalid escape")
	return noChar
}

func atoi(digits string) int {
	n := 0
	for _, c := range digits {
		n = n*10 + int(c-'0')
	}
	return n
}

// hex reads this many hexadecimal digits.
func (p *patternParser) hex(digits int) rune {
	var n rune
	for range digits {
		d := strings.IndexRune("0123456789abcdef", unicode.ToLower(p.next()))
		if d < 0 {
			p.fail("invalid escape")
			return noChar
		}
		n = n<<4 | rune(d)
	}
	return n
}

// unit reads what stands behind \u: a code point in braces, a code unit, or two that are a pair.
func (p *patternParser) unit() rune {
	if !p.take("{") {
		first := p.hex(4)
		if from := p.at; 0xd800 <= first && first < 0xdc00 && p.take(`\u`) && !p.take("{") {
			if second := p.hex(4); p.fault == "" && 0xdc00 <= second && second < 0xe000 {
				return (first-0xd800)<<10 + (second - 0xdc00) + 0x10000
			}
			p.at, p.fault = from, "" // what follows is read by itself
		} else {
			p.at = from
		}
		return first
	}
	var n rune
	for i := 0; ; i++ {
		if i > 0 && p.take("}") {
			return n
		}
		if n = n<<4 | p.hex(1); n > unicode.MaxRune {
			p.fail("invalid code point")
		}
		if p.fault != "" {
			return noChar
		}
	}
}

// property walks over the braces behind \p.
func (p *patternParser) property() {
	inside, _, closed := strings.Cut(p.text[p.at:], "}")
	inside, opened := strings.CutPrefix(inside, "{")
	name, value, pair := strings.Cut(inside, "=")
	known := false
	switch {
	case !pair:
		known = isCategory(name) || slices.Contains(binaryProperties, name)
	case name == "General_Category" || name == "gc":
		known = isCategory(value)
	case name == "Script" || name == "sc" || name == "Script_Extensions" || name == "scx":
		known = isScript(value)
	}
	if !opened || !closed || !known {
		p.fail("invalid property name")
		return
	}
	p.at += len(inside) + len("{}")
}

func isCategory(name string) bool {
	_, short := unicode.Categories[name]
	_, long := unicode.CategoryAliases[name]
	return short || long || name == "LC" || name == "Cased_Letter" || name == "Cn" || name == "Unassigned"
}

// isScript reports whether a name is that of a script in Unicode 15. Clients whose JavaScript is older
// know no later ones.
func isScript(name string) bool {
	_, long := unicode.Scripts[name]
	return long || name == "Unknown" || slices.Contains(shortScripts, name)
}

// shortScripts are the names of ISO 15924.
var shortScripts = strings.Fields(`
	Adlm Aghb Ahom Arab Armi Armn Avst Bali Bamu Bass Batk Beng Bhks Bopo Brah Brai Bugi Buhd Cakm Cans Cari Cham
	Cher Chrs Copt Cpmn Cprt Cyrl Deva Diak Dogr Dsrt Dupl Egyp Elba Elym Ethi Geor Glag Gong Gonm Goth Gran Grek
	Gujr Guru Hang Hani Hano Hatr Hebr Hira Hluw Hmng Hmnp Hung Ital Java Kali Kana Kawi Khar Khmr Khoj Kits Knda
	Kthi Lana Laoo Latn Lepc Limb Lina Linb Lisu Lyci Lydi Mahj Maka Mand Mani Marc Medf Mend Merc Mero Miao Mlym
	Modi Mong Mroo Mtei Mult Mymr Nagm Nand Narb Nbat Newa Nkoo Nshu Ogam Olck Orkh Orya Osge Osma Ougr Palm Pauc
	Perm Phag Phli Phlp Phnx Plrd Prti Qaac Qaai Rjng Rohg Runr Samr Sarb Saur Sgnw Shaw Shrd Sidd Sind Sinh Sogd
	Sogo Sora Soyo Sund Sylo Syrc Tagb Takr Tale Talu Taml Tang Tavt Telu Tfng Tglg Thaa Thai Tibt Tirh Tnsa Toto
	Ugar Vaii Vith Wara Wcho Xpeo Xsux Yezi Yiii Zanb Zinh Zyyy Zzzz`)

// binaryProperties are the names in ECMAScript 2024, tables 67 and 68.
var binaryProperties = strings.Fields(`ASCII ASCII_Hex_Digit AHex Alphabetic Alpha Any Assigned Bidi_Control
	Bidi_C Bidi_Mirrored Bidi_M Case_Ignorable CI Cased Changes_When_Casefolded CWCF Changes_When_Casemapped CWCM
	Changes_When_Lowercased CWL
	Changes_When_NFKC_Casefolded CWKCF Changes_When_Titlecased CWT Changes_When_Uppercased CWU Dash
	Default_Ignorable_Code_Point DI Deprecated Dep Diacritic Dia Emoji Emoji_Component EComp Emoji_Modifier EMod
	Emoji_Modifier_Base EBase Emoji_Presentation EPres Extended_Pictographic ExtPict Extender Ext Grapheme_Base Gr_Base
	Grapheme_Extend Gr_Ext Hex_Digit Hex IDS_Binary_Operator IDSB IDS_Trinary_Operator IDST ID_Continue IDC ID_Start IDS
	Ideographic Ideo Join_Control Join_C Logical_Order_Exception LOE Lowercase Lower Math Noncharacter_Code_Point NChar
	Pattern_Syntax Pat_Syn Pattern_White_Space Pat_WS Quotation_Mark QMark Radical Regional_Indicator RI
	Sentence_Terminal STerm Soft_Dotted SD Terminal_Punctuation Term Unified_Ideograph UIdeo Uppercase Upper
	Variation_Selector VS White_Space space XID_Continue XIDC XID_Start XIDS`)
