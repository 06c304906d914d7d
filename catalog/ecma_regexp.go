package catalog

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// regexpProblem returns a description of a syntax error in a regular expression, "" if it is valid.
// An expression with more than maxCaptures groups counts as invalid. The syntax is that of
// ECMAScript 2024 with the flag u, which JSON Schema compilers use. The standard package regexp has
// a different syntax, for example without lookahead.
func regexpProblem(text string) string {
	p := regexpParser{text: text}
	if p.names, p.captures = scanGroups(text); p.names == nil {
		return "two groups have the same name"
	}
	if p.captures > maxCaptures {
		return "too many groups"
	}
	p.pattern()
	return p.problem
}

// A regexpParser scans a regular expression once and stops at the first problem.
type regexpParser struct {
	text     string
	at       int
	captures int             // number of capturing groups in the whole expression
	names    map[string]bool // names of groups
	problem  string
}

const endRune = -1

// maxCaptures bounds the number of capturing groups. V8 accepts slightly more.
const maxCaptures = 30_000

// peek returns the next character, endRune at the end or after a problem.
func (p *regexpParser) peek() rune {
	if p.at >= len(p.text) || p.problem != "" {
		return endRune
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return r
}

func (p *regexpParser) next() rune {
	r := p.peek()
	if r != endRune {
		_, n := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += n
	}
	return r
}

// accept skips text, and returns true, if the remaining expression begins with text. After a
// problem it returns false.
func (p *regexpParser) accept(text string) bool {
	if p.problem != "" || !strings.HasPrefix(p.text[p.at:], text) {
		return false
	}
	p.at += len(text)
	return true
}

func (p *regexpParser) fail(problem string) {
	if p.problem == "" {
		p.problem = problem
	}
}

// scanGroups returns the names of the groups and the number of capturing groups. names is nil if
// two groups have the same name.
func scanGroups(text string) (names map[string]bool, groups int) {
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
				continue // reported later
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

func (p *regexpParser) pattern() {
	var looks []bool // per open group: whether it is a lookahead or lookbehind
	repeats := false // a quantifier may follow
	for p.problem == "" && p.peek() != endRune {
		switch c := p.next(); c {
		case '|', '^', '$':
			repeats = false
		case '(':
			looks = append(looks, p.groupStart())
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
				p.quantifier()
			}
			p.accept("?")
			repeats = false
		case '\\':
			if p.accept("b") || p.accept("B") {
				repeats = false
				continue
			}
			p.escape(false)
			repeats = true
		case '[':
			p.class()
			repeats = true
		case ']', '}':
			p.fail("unmatched bracket")
		default:
			repeats = true
		}
	}
	if len(looks) > 0 {
		p.fail("unterminated group")
	}
}

// groupStart parses the part of a group's opening that follows the parenthesis. looks is true for a
// lookahead or lookbehind.
func (p *regexpParser) groupStart() (looks bool) {
	switch {
	case !p.accept("?") || p.accept(":"):
		return false
	case p.accept("=") || p.accept("!") || p.accept("<=") || p.accept("<!"):
		return true
	case p.accept("<"):
		p.name()
	default:
		p.fail("invalid group")
	}
	return false
}

// name parses a group name and its closing bracket.
func (p *regexpParser) name() string {
	name, _, closed := strings.Cut(p.text[p.at:], ">")
	if !closed || name == "" {
		p.fail("invalid group name")
		return ""
	}
	first, _ := utf8.DecodeRuneInString(name)
	if !isNameStart(first) || strings.ContainsFunc(name,
		func(r rune) bool { return !isNamePart(r) }) {
		p.fail("invalid group name")
	}
	p.at += len(name) + 1
	return name
}

func isNameStart(r rune) bool {
	return r == '_' || r == '$' || unicode.In(r, unicode.L, unicode.Nl) &&
		!unicode.Is(unicode.Pattern_Syntax, r)
}

func isNamePart(r rune) bool {
	return isNameStart(r) || r == '\u200c' || r == '\u200d' ||
		unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc)
}

// quantifier parses a quantifier in braces, after the opening brace.
func (p *regexpParser) quantifier() {
	least, ok := p.digits()
	most := least
	if p.accept(",") {
		if most, _ = p.digits(); most == "" {
			most = least
		}
	}
	switch {
	case !ok || !p.accept("}"):
		p.fail("incomplete quantifier")
	case len(most) < len(least) || len(most) == len(least) && most < least:
		p.fail("numbers out of order in a quantifier")
	}
}

// digits reads a number and returns it without leading zeros, so that 0 is "". ok is false if there
// is no digit.
func (p *regexpParser) digits() (number string, ok bool) {
	from := p.at
	for c := p.peek(); '0' <= c && c <= '9'; c = p.peek() {
		p.next()
	}
	return strings.TrimLeft(p.text[from:p.at], "0"), p.at > from
}

// class parses a character class, after the opening bracket.
func (p *regexpParser) class() {
	p.accept("^")
	for p.problem == "" {
		if p.accept("]") {
			return
		}
		first := p.classAtom()
		if !strings.HasPrefix(p.text[p.at:], "-") || strings.HasPrefix(p.text[p.at:], "-]") {
			continue
		}
		p.next()
		switch last := p.classAtom(); {
		case first == classRune || last == classRune:
			p.fail("a character class at the end of a range")
		case first > last:
			p.fail("range out of order")
		}
	}
}

// classRune represents a character class where a character is expected.
const classRune = -2

func (p *regexpParser) classAtom() rune {
	switch c := p.next(); c {
	case endRune:
		p.fail("unterminated class")
		return endRune
	case '\\':
		return p.escape(true)
	default:
		return c
	}
}

// escape parses an escape, after the backslash. It returns the character that the escape
// represents, or classRune if the escape represents no single character. The result for an invalid
// escape has no meaning.
func (p *regexpParser) escape(inClass bool) rune {
	switch c := p.next(); c {
	case 'd', 'D', 's', 'S', 'w', 'W':
		return classRune
	case 'p', 'P':
		p.property()
		return classRune
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
		return p.unicodeEscape()
	case '0':
		if next := p.peek(); '0' <= next && next <= '9' {
			p.fail("invalid decimal escape")
		}
		return 0
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		p.at--
		if number, _ := p.digits(); inClass || len(number) > 6 || atoi(number) > p.captures {
			p.fail("unknown group number")
		}
		return classRune
	case 'k':
		if inClass || !p.accept("<") {
			p.fail("invalid named reference")
		} else if name := p.name(); p.problem == "" && !p.names[name] {
			p.fail("unknown group name")
		}
		return classRune
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
	return endRune
}

func atoi(digits string) int {
	n := 0
	for _, c := range digits {
		n = n*10 + int(c-'0')
	}
	return n
}

// hex reads the given number of hexadecimal digits and returns their value, endRune if one of them
// is invalid.
func (p *regexpParser) hex(digits int) rune {
	var n rune
	for range digits {
		d := strings.IndexRune("0123456789abcdef", unicode.ToLower(p.next()))
		if d < 0 {
			p.fail("invalid escape")
			return endRune
		}
		n = n<<4 | rune(d)
	}
	return n
}

// unicodeEscape parses an escape, after \u: a code point in braces, a code unit, or a surrogate
// pair, which consists of two escapes.
func (p *regexpParser) unicodeEscape() rune {
	if !p.accept("{") {
		first := p.hex(4)
		if from := p.at; 0xd800 <= first && first < 0xdc00 && p.accept(`\u`) && !p.accept("{") {
			if second := p.hex(4); p.problem == "" && 0xdc00 <= second && second < 0xe000 {
				return (first-0xd800)<<10 + (second - 0xdc00) + 0x10000
			}
			p.at, p.problem = from, "" // the second escape is parsed separately
		} else {
			p.at = from
		}
		return first
	}
	var n rune
	for i := 0; ; i++ {
		if i > 0 && p.accept("}") {
			return n
		}
		if n = n<<4 | p.hex(1); n > unicode.MaxRune {
			p.fail("invalid code point")
		}
		if p.problem != "" {
			return endRune
		}
	}
}

// property parses the braces after \p.
func (p *regexpParser) property() {
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
	return short || long || name == "LC" || name == "Cased_Letter" || name == "Cn" ||
		name == "Unassigned"
}

// isScript reports whether name is the name of a script in Unicode 15. Clients with an older
// JavaScript engine do not know scripts of later versions.
func isScript(name string) bool {
	_, long := unicode.Scripts[name]
	return long || name == "Unknown" || slices.Contains(shortScripts, name)
}

// shortScripts contains the ISO 15924 codes of the scripts in Unicode 15.
var shortScripts = strings.Fields(`
	Adlm Aghb Ahom Arab Armi Armn Avst Bali Bamu Bass Batk Beng Bhks Bopo Brah Brai Bugi Buhd Cakm
	Cans Cari Cham Cher Chrs Copt Cpmn Cprt Cyrl Deva Diak Dogr Dsrt Dupl Egyp Elba Elym Ethi Geor
	Glag Gong Gonm Goth Gran Grek Gujr Guru Hang Hani Hano Hatr Hebr Hira Hluw Hmng Hmnp Hung Ital
	Java Kali Kana Kawi Khar Khmr Khoj Kits Knda Kthi Lana Laoo Latn Lepc Limb Lina Linb Lisu Lyci
	Lydi Mahj Maka Mand Mani Marc Medf Mend Merc Mero Miao Mlym Modi Mong Mroo Mtei Mult Mymr Nagm
	Nand Narb Nbat Newa Nkoo Nshu Ogam Olck Orkh Orya Osge Osma Ougr Palm Pauc Perm Phag Phli Phlp
	Phnx Plrd Prti Qaac Qaai Rjng Rohg Runr Samr Sarb Saur Sgnw Shaw Shrd Sidd Sind Sinh Sogd Sogo
	Sora Soyo Sund Sylo Syrc Tagb Takr Tale Talu Taml Tang Tavt Telu Tfng Tglg Thaa Thai Tibt Tirh
	Tnsa Toto Ugar Vaii Vith Wara Wcho Xpeo Xsux Yezi Yiii Zanb Zinh Zyyy Zzzz`)

// binaryProperties contains the names in ECMAScript 2024, tables 67 and 68.
var binaryProperties = strings.Fields(`
	ASCII ASCII_Hex_Digit AHex Alphabetic Alpha Any Assigned Bidi_Control Bidi_C Bidi_Mirrored
	Bidi_M Case_Ignorable CI Cased Changes_When_Casefolded CWCF Changes_When_Casemapped CWCM
	Changes_When_Lowercased CWL Changes_When_NFKC_Casefolded CWKCF Changes_When_Titlecased CWT
	Changes_When_Uppercased CWU Dash Default_Ignorable_Code_Point DI Deprecated Dep Diacritic Dia
	Emoji Emoji_Component EComp Emoji_Modifier EMod Emoji_Modifier_Base EBase Emoji_Presentation
	EPres Extended_Pictographic ExtPict Extender Ext Grapheme_Base Gr_Base Grapheme_Extend Gr_Ext
	Hex_Digit Hex IDS_Binary_Operator IDSB IDS_Trinary_Operator IDST ID_Continue IDC ID_Start IDS
	Ideographic Ideo Join_Control Join_C Logical_Order_Exception LOE Lowercase Lower Math
	Noncharacter_Code_Point NChar Pattern_Syntax Pat_Syn Pattern_White_Space Pat_WS Quotation_Mark
	QMark Radical Regional_Indicator RI Sentence_Terminal STerm Soft_Dotted SD
	Terminal_Punctuation Term Unified_Ideograph UIdeo Uppercase Upper Variation_Selector VS
	White_Space space XID_Continue XIDC XID_Start XIDS`)
