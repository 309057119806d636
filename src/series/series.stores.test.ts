import { storeKinds } from "../store/contract/kinds.ts";
import { seriesContract } from "./contract/series.ts";

for (const kind of storeKinds) seriesContract(kind);
