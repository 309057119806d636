/** Letters of one sender to one address, in one row. */
export type MailRow = {
  readonly address: string;
  readonly sender: string;
  /** Rises with every row of a sender. */
  readonly seq: number;
  /** A JSON array of letters, in order. */
  readonly body: string;
};

/** A row as it comes along with a hint, and the number of the row that its sender left there before it. */
export type HintedMail = Pick<MailRow, "sender" | "seq" | "body"> & { readonly after: number };

export function encodeMail({ sender, seq, after, body }: HintedMail): string {
  return `${seq} ${after} ${JSON.stringify(sender)}\n${body}`;
}

const form = /^(\d+) (\d+) ("[^\n]*")\n/;

/** Undefined where it can't be read: then there is something to look for. */
export function decodeMail(text: string): HintedMail | undefined {
  const found = form.exec(text);
  if (!found) return undefined;
  const [head, seq, after, sender] = found;
  try {
    return {
      seq: Number(seq),
      after: Number(after),
      sender: String(JSON.parse(sender!)),
      body: text.slice(head.length),
    };
  } catch {
    return undefined;
  }
}
