/**
 * Blanks comments, strings and regular expressions, and keeps the code, including what stands
 * between `${` and `}` in a template. Enough of a scanner for sources our formatter has been over.
 */
export function codeOnly(text: string): string {
  let code = "";
  let at = 0;
  // Depth of braces inside each template expression we are in, innermost last.
  const templates: number[] = [];

  while (at < text.length) {
    const rest = text.slice(at, at + 2);
    if (rest === "//") skip(/[^\n]*/y);
    else if (rest === "/*") skip(/[\s\S]*?\*\//y);
    else if (text[at] === '"') skip(/"(?:\\.|[^"\\])*"/y, '""');
    else if (text[at] === "'") skip(/'(?:\\.|[^'\\])*'/y, '""');
    else if (text[at] === "/" && regexMayStart()) {
      skip(/\/(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\[\n])+\/\w*/y, "/x/");
    } else if (text[at] === "`") skipTemplate();
    else if (text[at] === "}" && templates.at(-1) === 0) {
      templates.pop();
      skipTemplate();
    } else {
      if (templates.length > 0 && text[at] === "{") templates.push(templates.pop()! + 1);
      if (templates.length > 0 && text[at] === "}") templates.push(templates.pop()! - 1);
      code += text[at++];
    }
  }
  return code;

  function skip(pattern: RegExp, replacement = " "): void {
    pattern.lastIndex = at;
    at += pattern.exec(text)?.[0].length ?? 1;
    code += replacement;
  }

  /** From an opening backtick, or the end of an expression, to the next expression or the end. */
  function skipTemplate(): void {
    skip(/[`}](?:\\[\s\S]|\$(?!\{)|[^`\\$])*(?:`|\$\{)/y, " ");
    if (text[at - 1] === "{") templates.push(0);
  }

  /** A slash after a value divides; anywhere else it opens a regular expression. */
  function regexMayStart(): boolean {
    const before = code.trimEnd();
    return /(?:^|[([{,;=:!&|?+*<>~^%}-]|\b(?:return|typeof|case|of|in))$/.test(before);
  }
}
