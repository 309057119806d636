/** A line of a plot. Where a value is missing, nothing was counted. */
export type PlotLine = {
  readonly name: string;
  readonly tone: "accent" | "good" | "warn" | "wrong" | "plain";
  readonly values: readonly (number | null)[];
};

export type PlotProps = {
  readonly title: string;
  /** When each value was, in milliseconds, rising. */
  readonly timesMs: readonly number[];
  readonly lines: readonly PlotLine[];
  /** A value as text, with its unit. */
  readonly valueText: (value: number) => string;
  /** Such as a change of a bound, with its cause. */
  readonly marks?: readonly { readonly atMs: number; readonly text: string }[];
};

/** Lines over time, with the same as a table for people that can't see them. */
export function Plot({ title, timesMs, lines, valueText }: PlotProps) {
  return (
    <figure className="plot" aria-label={title}>
      <figcaption>{title}</figcaption>
      <details>
        <summary>as a table</summary>
        <table>
          <thead>
            <tr>
              <th scope="col">Time</th>
              {lines.map(({ name }) => (
                <th scope="col" key={name}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {timesMs.map((atMs, row) => (
              <tr key={atMs}>
                <th scope="row">{new Date(atMs).toISOString()}</th>
                {lines.map(({ name, values }) => {
                  const value = values[row];
                  return <td key={name}>{value == null ? "–" : valueText(value)}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </figure>
  );
}
