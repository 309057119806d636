import { temporaryDatabase } from "../store/contract/kinds.ts";
import { quotasContract } from "./contract/quotas.ts";

quotasContract("Postgres", async () => {
  const { url, remove } = await temporaryDatabase();
  return { store: url, remove };
});
