// A dialog that asks a question, one at a time.

export class Question {
  constructor(dialog) {
    this.dialog = dialog;
    this.settle = () => {};
    // By Escape, too. The event comes late: the next question may be open by then.
    dialog.addEventListener('close', () => {
      if (!dialog.open) this.settle(null);
    });
  }

  // Resolves to the answer; null: it was closed without one.
  open() {
    this.settle(null);
    this.dialog.showModal();
    return new Promise(resolve => {
      this.settle = resolve;
    });
  }

  answer(value) {
    this.settle(value);
    this.dialog.close();
  }
}
