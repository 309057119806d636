/**
 * Reads Prometheus's text format, version 0.0.4, and refuses whatever isn't in its rules or in the
 * conventions for names: a scraper would drop the whole page.
 */
export type Sample = { readonly name: string; readonly labels: string; readonly value: number };
export type Family = { readonly type: string; readonly help: string; readonly samples: Sample[] };

const nameChars = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const label = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/;
const sampleLine = /^([^\s{]+)(?:\{(.*)\})? (\S+)$/;
const types = ["counter", "gauge", "histogram", "summary", "untyped"];

export function parseExposition(text: string): Map<string, Family> {
  must(text.endsWith("\n"), "the last line must end too", text.slice(-80));
  const families = new Map<string, Family>();
  const seen = new Set<string>();
  let current: { name: string; help: string; family?: Family } | undefined;
  for (const line of text.slice(0, -1).split("\n")) {
    if (line === "") continue;
    if (line.startsWith("# HELP ")) {
      const [, name = "", help = ""] = /^# HELP (\S+) (.+)$/.exec(line) ?? [];
      must(nameChars.test(name) && help.trim() !== "", "a help has a name and a text", line);
      must(!families.has(name), "a family comes once, in one piece", line);
      current = { name, help };
    } else if (line.startsWith("# TYPE ")) {
      const [, name, type = ""] = /^# TYPE (\S+) (\S+)$/.exec(line) ?? [];
      must(current?.name === name && !current?.family, "a type follows its help", line);
      must(types.includes(type), "the type is known", line);
      current!.family = { type, help: current!.help, samples: [] };
      families.set(name!, current!.family);
    } else {
      must(!line.startsWith("#"), "there are no other comments", line);
      const [, name = "", labels = "", value = ""] = sampleLine.exec(line) ?? [];
      must(current?.family, "a sample follows its type", line);
      must(belongs(name, current!.name, current!.family!.type), "a sample is of its family", line);
      must(/^([+-]?\d+(\.\d+)?(e[+-]?\d+)?|[+-]Inf|NaN)$/i.test(value), "its value is one", line);
      checkLabels(labels, line);
      must(!seen.has(`${name}{${labels}}`), "a series comes once", line);
      seen.add(`${name}{${labels}}`);
      current!.family!.samples.push({ name, labels, value: numberOf(value) });
    }
  }
  for (const [name, family] of families) checkFamily(name, family);
  return families;
}

/** The sum of a family's samples whose labels hold all of these texts. */
export function valueOf(families: Map<string, Family>, name: string, ...labels: string[]): number {
  const family = [...families.values()].find((each) =>
    each.samples.some((sample) => sample.name === name),
  );
  const found = (family?.samples ?? []).filter(
    (sample) => sample.name === name && labels.every((text) => sample.labels.includes(text)),
  );
  return found.reduce((sum, sample) => sum + sample.value, 0);
}

function belongs(sample: string, family: string, type: string): boolean {
  if (type === "histogram") {
    return ["_bucket", "_sum", "_count"].some((suffix) => sample === family + suffix);
  }
  return sample === family;
}

function checkLabels(labels: string, line: string): void {
  const names = new Set<string>();
  let rest = labels;
  while (rest !== "") {
    const found = label.exec(rest);
    must(found, "labels are written as they must be", line);
    must(!names.has(found![1]!), "a label comes once", line);
    names.add(found![1]!);
    rest = rest.slice(found![0].length);
  }
}

function checkFamily(name: string, { type, samples }: Family): void {
  const ours = name.startsWith("flotilla_");
  if (ours && type === "counter") must(name.endsWith("_total"), "a counter ends in _total", name);
  if (type === "counter") {
    must(
      samples.every((sample) => sample.value >= 0),
      "a counter isn't negative",
      name,
    );
  }
  must(!ours || !/_(ms|milliseconds|bytes?_mb)$/.test(name), "units are base units", name);
  if (type !== "histogram") return;
  must(!ours || name.endsWith("_seconds"), "a histogram names its unit", name);
  const series = new Map<string, Sample[]>();
  for (const sample of samples.filter((each) => each.name.endsWith("_bucket"))) {
    const others = sample.labels.replace(/,?le="[^"]*",?/, "");
    series.set(others, [...(series.get(others) ?? []), sample]);
  }
  for (const [labels, buckets] of series) {
    const bounds = buckets.map((bucket) => numberOf(/le="([^"]*)"/.exec(bucket.labels)![1]!));
    must(bounds.at(-1) === Infinity, "the last bucket holds everything", name);
    const pairs = buckets.slice(1).map((bucket, at) => [buckets[at]!, bucket] as const);
    const rising = bounds.slice(1).every((bound, at) => bound > bounds[at]!);
    must(rising, "bounds rise", name);
    const cumulative = pairs.every(([before, after]) => before.value <= after.value);
    must(cumulative, "buckets hold all that is below them", name);
    const count = samples.find((each) => each.name === `${name}_count` && each.labels === labels);
    must(count?.value === buckets.at(-1)!.value, "the count is that of the last bucket", name);
  }
}

function numberOf(text: string): number {
  return text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text);
}

function must(condition: unknown, rule: string, where: string): void {
  if (!condition) throw new Error(`${rule}: ${where}`);
}
