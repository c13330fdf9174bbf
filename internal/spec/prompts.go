package spec

// PromptLearningConfig are the keys that the methods of virtual tokens have.
type PromptLearningConfig struct {
	At            Span     `yaml:"-"`
	Tokens        Integer  `yaml:"num_virtual_tokens" min:"1" doc:"virtual tokens of a sample, which has so many tokens more in the model, or so many keys and values more in each layer"`
	Dim           Integer  `yaml:"token_dim" min:"1" doc:"features of a virtual token; by default the model's"`
	Submodules    Integer  `yaml:"num_transformer_submodules" min:"1" max:"2" doc:"2 for a model with an encoder and a decoder, 1 for others, as PEFT has it by itself"`
	Heads         Integer  `yaml:"num_attention_heads" min:"1" doc:"not read but by prefix tuning: by default the model's; PEFT reads num_key_value_heads of a model that has it"`
	Layers        Integer  `yaml:"num_layers" min:"1" doc:"not read but by prefix tuning: by default the model's"`
	ModulesToSave []String `yaml:"modules_to_save" doc:"names of modules of which a copy is trained as a whole"`
	PeftConfig
}

// PromptTuningConfig are the keys of peft.PromptTuningConfig.
type PromptTuningConfig struct {
	PromptLearningConfig
	Init          String `yaml:"prompt_tuning_init" enum:"RANDOM|SAMPLE_VOCAB|TEXT" default:"RANDOM" doc:"first values: SAMPLE_VOCAB and TEXT look embeddings up, on the GPU if the model is there"`
	InitText      String `yaml:"prompt_tuning_init_text" doc:"text"`
	Tokenizer     String `yaml:"tokenizer_name_or_path" doc:"not read: reads the text"`
	TokenizerArgs *Value `yaml:"tokenizer_kwargs" doc:"not read: of the tokenizer"`
}

// PromptEncoderConfig are the keys of peft.PromptEncoderConfig.
type PromptEncoderConfig struct {
	PromptLearningConfig
	Kind    String  `yaml:"encoder_reparameterization_type" enum:"MLP|LSTM" default:"MLP" doc:"the network that computes the embeddings"`
	Hidden  Integer `yaml:"encoder_hidden_size" min:"1" doc:"features inside of it; by default the model's"`
	Depth   Integer `yaml:"encoder_num_layers" min:"1" default:"2" doc:"layers of the LSTM; not read with MLP"`
	Dropout Number  `yaml:"encoder_dropout" min:"0" max:"1" default:"0" doc:"probability of the dropout between them; not read with MLP"`
}

// PrefixTuningConfig are the keys of peft.PrefixTuningConfig.
type PrefixTuningConfig struct {
	PromptLearningConfig
	Projection Boolean `yaml:"prefix_projection" doc:"a small network computes the keys and values"`
	Hidden     Integer `yaml:"encoder_hidden_size" min:"1" doc:"features inside of it; by default those of a layer's keys"`
	Init       String  `yaml:"init_weights" enum:"zero" doc:"first values, which do not change memory"`
}

// Prompts are the keys that all methods of virtual tokens have; nil: the method is none.
func (p *PEFT) Prompts() *PromptLearningConfig {
	switch {
	case p == nil:
	case p.Prompt != nil:
		return &p.Prompt.PromptLearningConfig
	case p.PTuning != nil:
		return &p.PTuning.PromptLearningConfig
	case p.Prefix != nil:
		return &p.Prefix.PromptLearningConfig
	}
	return nil
}

// Recurrent reports whether the embeddings are computed by an LSTM.
func (p *PEFT) Recurrent() bool { return p != nil && p.PTuning != nil && p.PTuning.Kind.V == "LSTM" }

// Embeddings are those of the methods that put embeddings in front of a sample, which is
// longer in the model then; nil: the method is none.
func (p *PEFT) Embeddings() *PromptLearningConfig {
	if p == nil || p.Prefix != nil {
		return nil
	}
	return p.Prompts()
}
