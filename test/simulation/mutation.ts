import { shippedSources } from "../sources.ts";

export type Edit = { readonly file: string; readonly find: string; readonly put: string };
export type Mutation = {
  readonly name: string;
  readonly edits: readonly Edit[];
  /** Where it takes out two fences: the invariant that shows that the second is missed too. */
  readonly by?: string;
  /** What is simulated: pods with tasks, unless it says otherwise. */
  readonly scenario?:
    | "archive"
    | "beats"
    | "flows"
    | "forks"
    | "sessions"
    | "streams"
    | "throttles";
};

const sources = shippedSources();

/** An edit of the one file that has the text, among these files and folders of `src`. */
export const of =
  (...paths: readonly string[]) =>
  (find: string, put = ""): Edit => {
    const files = sources.filter(({ path }) =>
      paths.some((each) => path === `src/${each}.ts` || path.startsWith(`src/${each}/`)),
    );
    const found = files.filter(({ text }) => text.includes(find));
    if (found.length !== 1)
      throw new Error(`${found.length} files of ${paths.join(", ")} have ${JSON.stringify(find)}`);
    return { file: found[0]!.path, find, put };
  };
