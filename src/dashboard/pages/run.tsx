import { PageTitle } from "../parts/states.tsx";

export function OneRunPage() {
  return <PageTitle name="Run">Run</PageTitle>;
}
