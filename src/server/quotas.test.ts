import { temporaryFile } from "../store/contract/kinds.ts";
import { quotasContract } from "./contract/quotas.ts";

quotasContract("a SQLite file", async () => {
  const { path, remove } = temporaryFile();
  return { store: `sqlite:${path}`, remove };
});
