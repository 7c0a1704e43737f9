// A dialog that asks a question, one at a time.

export class Question {
  constructor(dialog) {
    this.dialog = dialog;
    this.settle = () => {};
    // Escape closes the dialog too. The event may come after the next question was opened.
    dialog.addEventListener('close', () => {
      if (!dialog.open) this.settle(null);
    });
  }

  // Resolves to the answer, or to null if the dialog was closed without one.
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
